import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { link, mkdir, open, readdir, readFile, rename, rm, stat, unlink } from "node:fs/promises";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileErrorToFailure, syncFolder } from "../../src/core/errors/folder-access.ts";
import { systemErrorCode } from "../../src/core/errors/local-machine-failure.ts";
import { type Clock, systemClock } from "../../src/core/runtime/clock.ts";
import { compareInUtf8Order, type ObjectStore, type StoredLakeFile } from "./object-store.ts";

/** Name of an unfinished file, which a crash can leave; readers of `*.parquet` ignore such files. */
const DRAFT_FILE_PATTERN = /^\..*\.[0-9a-f]{8}\.tmp$/;
/** Age at which an unfinished file is abandoned; a write takes seconds. */
const MAX_DRAFT_FILE_AGE_MS = 10 * 60_000;

/** Stores objects as files. After a power cut, a file has either its complete old or its complete new content. */
export function createFolderStore(
  folder: string,
  fileMode: number,
  clock: Pick<Clock, "monotonic"> = systemClock,
): ObjectStore & { progressMs(): number } {
  const rootFolder = resolve(folder);
  let lastOperationMs = clock.monotonic();
  const folderMode = fileMode | ((fileMode & 0o444) >> 2) | 0o300;
  const preparedFolders = new Set<string>();
  const toPath = (key: string) => {
    const path = join(rootFolder, key);
    if (!path.startsWith(rootFolder + sep)) throw new Error(`The key ${key} leads out of the folder.`);
    return path;
  };

  async function prepareFolder(path: string): Promise<void> {
    if (preparedFolders.has(path)) return;
    const firstCreatedFolder = await mkdir(path, { recursive: true, mode: folderMode });
    if (firstCreatedFolder !== undefined) {
      for (let created = path; created.length >= firstCreatedFolder.length; created = dirname(created))
        await syncFolder(dirname(created));
    } else await removeAbandonedDrafts(path);
    preparedFolders.add(path);
  }

  async function writeDraftFile(key: string, bytes: Uint8Array): Promise<string> {
    const path = toPath(key);
    await prepareFolder(dirname(path));
    const name = path.slice(dirname(path).length + 1);
    const draftPath = join(dirname(path), `.${name}.${randomBytes(4).toString("hex")}.tmp`);
    const draftFileHandle = await open(draftPath, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, fileMode);
    try {
      await draftFileHandle.writeFile(bytes);
      await draftFileHandle.sync();
    } catch (error) {
      await rm(draftPath, { force: true });
      throw error;
    } finally {
      await draftFileHandle.close();
    }
    return draftPath;
  }

  async function publishDraft<T>(key: string, bytes: Uint8Array, publish: (draft: string) => Promise<T>): Promise<T> {
    try {
      const draftPath = await writeDraftFile(key, bytes);
      try {
        return await publish(draftPath);
      } finally {
        await rm(draftPath, { force: true });
        await syncFolder(dirname(draftPath));
      }
    } catch (error) {
      preparedFolders.clear();
      throw error;
    }
  }

  async function runOperation<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    try {
      const result = await work();
      lastOperationMs = clock.monotonic();
      return result;
    } catch (error) {
      throw signal.aborted ? signal.reason : fileErrorToFailure(error, rootFolder, "Free some space");
    }
  }

  return {
    location: rootFolder,
    /** Monotonic time at which a file was last written, read, listed or removed. */
    progressMs: () => lastOperationMs,
    put: (key, bytes, signal) =>
      runOperation(signal, () => publishDraft(key, bytes, (draft) => rename(draft, toPath(key)))),
    putIfAbsent: (key, bytes, signal) =>
      runOperation(signal, () =>
        publishDraft(key, bytes, async (draft) => {
          try {
            await link(draft, toPath(key));
            return true;
          } catch (error) {
            if (systemErrorCode(error) === "EEXIST") return false;
            throw error;
          }
        }),
      ),
    get: (key, signal) => runOperation(signal, () => readFile(toPath(key), { signal }).catch(returnIfMissing(null))),
    list: (prefix, signal, afterKey) =>
      runOperation(signal, async () => {
        const listedFolder = join(rootFolder, prefix.slice(0, prefix.lastIndexOf("/") + 1));
        const foundFiles: StoredLakeFile[] = [];
        const entries = readdir(listedFolder, { recursive: true, withFileTypes: true });
        for (const file of await entries.catch(returnIfMissing([]))) {
          const path = join(file.parentPath, file.name);
          const key = relative(rootFolder, path).split(sep).join("/");
          if (!file.isFile() || DRAFT_FILE_PATTERN.test(file.name) || !key.startsWith(prefix)) continue;
          if (afterKey !== undefined && compareInUtf8Order(key, afterKey) <= 0) continue;
          const { size } = (await stat(path).catch(() => null)) ?? {};
          if (size !== undefined) foundFiles.push({ key, bytes: size });
        }
        return foundFiles.sort((a, b) => compareInUtf8Order(a.key, b.key));
      }),
    listFolders: (prefix, signal) =>
      runOperation(signal, async () => {
        const entries = readdir(join(rootFolder, prefix), { withFileTypes: true });
        const folders = (await entries.catch(returnIfMissing([]))).filter((entry) => entry.isDirectory());
        return folders.map(({ name }) => name).sort(compareInUtf8Order);
      }),
    remove: (key, signal) =>
      runOperation(signal, async () => {
        const path = toPath(key);
        await unlink(path)
          .then(() => syncFolder(dirname(path)))
          .catch(returnIfMissing(undefined));
      }),
  };
}

async function removeAbandonedDrafts(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!DRAFT_FILE_PATTERN.test(name)) continue;
    const path = join(folder, name);
    const draftStats = await stat(path).catch(() => null);
    if (draftStats !== null && Date.now() - draftStats.mtimeMs > MAX_DRAFT_FILE_AGE_MS) await rm(path, { force: true });
  }
}

function returnIfMissing<T>(value: T): (error: unknown) => T {
  return (error) => {
    if (systemErrorCode(error) === "ENOENT") return value;
    throw error;
  };
}
