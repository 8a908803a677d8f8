/** Norwegian (bokmål) texts of the setup, by the English text. Messages of the service or machine stay in English. */
export const NORWEGIAN = {
  "Loading …": "Laster …",
  "Set up Plenum": "Sett opp Plenum",
  ...{ setup: "oppsett", Steps: "Trinn", code: "kode", building: "bygg", intervals: "intervaller", done: "ferdig" },
  ...{ h: "t", Continue: "Videre" },
  "Plenum does not respond. See the terminal.": "Plenum svarer ikke lenger; se i terminalen.",
  "The request failed.": "Dette gikk ikke.",
  "The server does not understand this request. Load the page again.":
    "Siden spurte om noe som ikke finnes; last den på nytt.",
  "The request is too long.": "Det er for langt.",
  "Enter the code": "Skriv inn koden",
  "The terminal shows the code. You started Plenum there with:": "Koden står i terminalen der du startet Plenum med:",
  Code: "Kode",
  "This is not the code. The terminal shows the code for one browser.":
    "Dette er ikke koden. Den står i terminalen, og gjelder for én nettleser.",
  "Enter the code from the terminal.": "Skriv inn koden som står i terminalen.",
  "Where is the building?": "Hvor er bygget?",
  "Address of the monitoring service": "Adressen til overvåkingstjenesten",
  "Access token": "Tilgangsnøkkel",
  "Create a token in your user profile at the service. Plenum stores it in a separate file that only you can read.":
    "Du lager den i brukerprofilen din hos tjenesten. Den lagres i en egen fil som bare du kan lese.",
  "Test network only: send the token unencrypted over http://": "I et testnett: la nøkkelen gå lesbar, over http://",
  "The access token is missing.": "Tilgangsnøkkelen mangler.",
  "Inspecting …": "Ser etter …",
  "Inspect the building": "Se på bygget",
  "Plenum inspects alarms and tags. A large building takes half a minute.":
    "Ser på alarmer og tagger; et stort bygg tar et halvt minutt.",
  "The address says no {scheme}://; that is assumed.": "Adressen sier ikke {scheme}://; det er antatt.",
  "What follows ? or # in the address is left out.": "Det som følger etter ? eller # i adressen, er utelatt.",
  "{end} at the end of the address is left out; it is added by itself.":
    "{end} på slutten av adressen er utelatt; det legges til av seg selv.",
  "Inspection result": "Resultat av undersøkelsen",
  'Token "{token}" of {user}, which never expires': "Nøkkelen «{token}» til {user}, som aldri utløper",
  'Token "{token}" of {user}, valid until {date}': "Nøkkelen «{token}» til {user}, gyldig til {date}",
  'Token "{token}" of {user}, which expires in 1 day ({date})':
    "Nøkkelen «{token}» til {user}, som utløper om 1 dag ({date})",
  'Token "{token}" of {user}, which expires in {days} days ({date})':
    "Nøkkelen «{token}» til {user}, som utløper om {days} dager ({date})",
  ...{ "1 tag": "1 tagg", "{tags} tags": "{tags} tagger" },
  ...{ "about 1 tag": "omtrent 1 tagg", "about {tags} tags": "omtrent {tags} tagger" },
  ...{ "no unit": "uten enhet", Sites: "Eiendommer" },
  ...{ "1 active alarm": "1 aktiv alarm", "{count} active alarms": "{count} aktive alarmer" },
  "Largest systems:": "Største anlegg:",
  "Another address or token": "En annen adresse eller nøkkel",
  "{listed} tags were looked at; units and numbers of the others are assumed to be alike.":
    "{listed} tagger ble sett på; enheter og antall for de andre er antatt å være som disse.",
  "The token may not read tags (read:tags): alarms are followed, and no value is read.":
    "Nøkkelen kan ikke lese tagger (read:tags): alarmer følges, og ingen verdi leses.",
  "The token may not read alarms (read:alarms): values are read, and no alarm is followed.":
    "Nøkkelen kan ikke lese alarmer (read:alarms): verdier leses, og ingen alarm følges.",
  "There is no tag in this site: a user who has permission for components only sees tags through the views.":
    "Det er ingen tagg i denne eiendommen: en bruker som bare har tilgang til komponenter, ser tagger gjennom visningene.",
  "There is no tag in these {count} sites: a user who has permission for components only sees tags through the views.":
    "Det er ingen tagg i disse {count} eiendommene: en bruker som bare har tilgang til komponenter, ser tagger gjennom visningene.",
  "The token may write tags. Writing stays off; a token without write:tags is safer.":
    "Nøkkelen kan skrive til tagger. Skriving er likevel av; en nøkkel uten write:tags er tryggere.",
  "How old may values become?": "Hvor gamle kan verdier bli?",
  "Measured values": "Måleverdier",
  "temperatures, flows, powers …": "temperaturer, mengder, effekter …",
  ...{ Meters: "Målere", "counters that only increase": "tellere som bare øker" },
  "The rest": "Resten",
  "states, modes and values without a unit": "tilstander, moduser, det som er uten enhet",
  "not read": "leses ikke",
  "Logged history, by the hour": "Logget historikk, time for time",
  ...{ "not fetched": "hentes ikke", "from now on": "fra nå av" },
  ...{ "1 day back": "1 dag tilbake", "{days} days back": "{days} dager tilbake" },
  "Share of the quota": "Andel av kvoten",
  "a smaller share leaves requests for your other programs":
    "en mindre andel gir forespørsler til dine andre programmer",
  "No tag is read; alarms are followed.": "Ingen tagg leses; alarmer følges.",
  "These intervals take {share} of the quota ({count} requests a minute).":
    "Disse ønskene tar {share} av kvoten ({count} forespørsler i minuttet).",
  "These intervals need {share} of the quota ({count} requests a minute), so values become older than configured.":
    "Disse ønskene trenger {share} av kvoten ({count} forespørsler i minuttet), så verdier blir eldre enn ønsket.",
  "{name}: {tags} tags, a value every {age}": "{name}: {tags} tagger, en verdi per {age}",
  "{name}: {tags} tags, a value every {age}, less often than configured":
    "{name}: {tags} tagger, en verdi per {age}, sjeldnere enn ønsket",
  "A database or data lake stores {rows} rows of values a day":
    "En database eller datasjø lagrer {rows} rader med verdier om dagen",
  "history {name}: {tags} tags at {resolution}": "historikk {name}: {tags} tagger per {resolution}",
  "history {name}: {tags} tags at {resolution}, its past fetched in {time}":
    "historikk {name}: {tags} tagger per {resolution}, fortiden hentet på {time}",
  "The cheapest change:": "Den billigste endringen:",
  "Settings that the service does not provide": "Innstillinger som tjenesten ikke oppgir",
  "Time zone of the buildings": "Tidssonen til byggene",
  "The service does not state the time zone. Days and weeks of history begin in this zone.":
    "Tjenesten oppgir den ikke; døgn og uker i historikken begynner etter den.",
  "The times of the alarms fit {zone}, as this machine.":
    "Tidene til alarmene passer med {zone}, som på denne maskinen.",
  "An alarm of {day} has a time at {offset}.": "En alarm fra {day} har en tid med {offset}.",
  "An alarm of {day} has a time at {offset}, which {zone}, this machine's zone, does not have then.":
    "En alarm fra {day} har en tid med {offset}, som {zone}, sonen til denne maskinen, ikke har da.",
  "MQTT broker that receives the events": "MQTT-megler som får hendelsene",
  "none: events go to files": "ingen: de går til filer",
  "For example mqtt://localhost. Add passwords, InfluxDB, webhooks and more in the file.":
    "For eksempel mqtt://localhost. Passord, InfluxDB, webhooks og mer legges til i filen.",
  "Write the configuration": "Skriv konfigurasjonen",
  "The configuration is written": "Konfigurasjonen er skrevet",
  "is the configuration. You can change it.": "er konfigurasjonen. Du kan endre den.",
  "contains the token. Only you can read it.": "inneholder nøkkelen, og bare du kan lese den.",
  "There is no configuration yet.": "Det er ingen konfigurasjon ennå.",
  "The worker is starting. Its status page appears here in a moment.":
    "Tjenesten starter; siden dens kommer her om et øyeblikk.",
  "Start the worker": "Start tjenesten",
  "Next steps": "Neste steg",
  "asks the service and every sink, and writes nothing": "spør tjenesten og hver mottaker, og skriver ingenting",
  "what the intervals cost, after every change of the file": "hva ønskene koster, etter hver endring av filen",
  "starts the worker; it says where its status page is": "starter tjenesten; den sier hvor statussiden er",
  "what there is to select": "hva det er å velge blant",
};
