"""What delta-rs (PyPI: deltalake, pyarrow) makes of a table: `read`, `change` or `append` FOLDER [COUNT]; of a lake of
them: `lake` FOLDER TABLE…; or of values in one: `meddle` FOLDER POSITION. Answers JSON."""
import datetime
import json
import sys

import pyarrow
from deltalake import DeltaTable, write_deltalake


def plain(value):
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value.isoformat() if isinstance(value, datetime.date) else value


def rows(table, **options):
    found = table.to_pyarrow_table(**options).to_pylist()
    return sorted(([plain(v) for v in row.values()] for row in found), key=lambda row: row[4])


def read(folder):
    table = DeltaTable(folder)
    earlier = DeltaTable(folder, version=9)
    later = table.to_pyarrow_dataset().to_table(
        filter=pyarrow.compute.field("value") > 20
    )
    return {
        "version": table.version(),
        "name": table.metadata().name,
        "protocol": [table.protocol().min_reader_version, table.protocol().min_writer_version],
        "columns": table.to_pyarrow_table().column_names,
        "rows": rows(table),
        "day": rows(table, filters=[("date", "=", datetime.date(2026, 11, 22))]),
        "earlier": [row[4] for row in rows(earlier)],
        "above": later.num_rows,
        "app": table.transaction_version("worker"),
        "operations": [entry["operation"] for entry in table.history()],
    }


def change(folder):
    """Adds a column and a row, takes rows away, puts small files together, writes a checkpoint."""
    table = DeltaTable(folder)
    append(folder, 1, note="theirs")
    table = DeltaTable(folder)
    deleted = table.delete("position = 10")
    compacted = DeltaTable(folder).optimize.compact()
    DeltaTable(folder).create_checkpoint()
    return {"deleted": deleted["num_deleted_rows"], "removed": compacted["numFilesRemoved"]}


def append(folder, count, **more):
    for n in range(count):
        row = {
            "meter_id": "theirs",
            "time": datetime.datetime(2026, 11, 23, tzinfo=datetime.timezone.utc),
            "position": 9000 + n,
            "date": datetime.date(2026, 11, 23),
            "site": "theirs",
            **more,
        }
        data = pyarrow.Table.from_pylist([row])
        write_deltalake(folder, data, mode="append", schema_mode="merge")
    return {"appended": count}


def lake(folder, *names):
    """The rows of each table, by the names of its columns."""
    tables = {name: DeltaTable(f"{folder}/{name}") for name in names}
    return {
        name: [{key: plain(value) for key, value in row.items()} for row in table.to_pyarrow_table().to_pylist()]
        for name, table in tables.items()
    }


def meddle(folder, position):
    """Takes a row away and puts the files of a day together."""
    deleted = DeltaTable(f"{folder}/value").delete(f"position = {position}")
    compacted = DeltaTable(f"{folder}/value").optimize.compact()
    return {"deleted": deleted["num_deleted_rows"], "removed": compacted["numFilesRemoved"]}


name, folder, *rest = sys.argv[1:]
act = {"read": read, "change": change, "append": append, "lake": lake, "meddle": meddle}[name]
print(json.dumps(act(folder, *(int(word) if word.isdigit() else word for word in rest))))
