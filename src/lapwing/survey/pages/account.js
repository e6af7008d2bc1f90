// The device's memo and account, in the browser's own database (IndexedDB).
//
// One record per survey, under the survey's digest: the question drawn, the price, the report, the
// credential. What the device has spent is the sum of the prices. The charge and the report are written
// in one strict transaction (it ends after the disk has it) and read back before anything is sent, so a
// crash can neither forget a charge nor throw the coins twice. Transactions of two tabs take turns.
//
// One device is one person's account. Of the invitation only a hash is kept, with the signature: who comes
// with another invitation, or with none, is told that this device has answered, and not what.

const STORE = "surveys";

export class NoStorage extends Error {}
export class OverLifetime extends Error {}

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function database() {
  const request = indexedDB.open("lapwing", 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return done(request);
}

/** Runs `work(records, store)` inside one transaction; its result counts once all is on the disk. */
async function transact(mode, work) {
  let base;
  try {
    base = await database();
  } catch {
    throw new NoStorage("This browser keeps no memory for this page.");
  }
  try {
    return await new Promise((resolve, reject) => {
      const transaction = base.transaction(STORE, mode, { durability: "strict" });
      let result, failure;
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(failure ?? new NoStorage("This browser could not store the report."));
      const store = transaction.objectStore(STORE);
      const keys = store.getAllKeys();
      const values = store.getAll();
      values.onsuccess = () => {
        try {
          const records = new Map(keys.result.map((key, at) => [key, values.result[at]]));
          result = work(records, store);
        } catch (error) {
          failure = error;
          transaction.abort();
        }
      };
    });
  } finally {
    base.close();
  }
}

function spentOf(records) {
  let sum = 0n;
  for (const { price } of records.values()) sum += BigInt(price ?? "0");
  return sum;
}

/** { memo, spent }: what is stored for this survey (or undefined), and what the device has spent. */
export function look(digest) {
  return transact("readonly", (records) => ({ memo: records.get(digest), spent: spentOf(records) }));
}

/** The memo's fields for this survey; those that are there already stay as they are. */
async function keep(digest, fields) {
  const kept = await transact("readwrite", (records, store) => {
    const memo = { ...fields(records.get(digest) ?? {}, spentOf(records)), ...records.get(digest) };
    store.put(memo, digest);
    return memo;
  });
  const { memo } = await look(digest); // another tab may have added something meanwhile
  if (!Object.entries(kept).every(([name, value]) => memo?.[name] === value)) {
    throw new NoStorage("This browser did not store what it was given.");
  }
  return memo;
}

/** Draws once, before any answer is given, which question is asked; the same again afterwards. */
export function drawQuestion(digest, draw) {
  return keep(digest, (memo) => (memo.question === undefined ? { question: draw() } : {}));
}

/** Charges, throws and stores in one step. A report that is there already is returned as it is. */
export function commit(digest, price, lifetime, makeReport) {
  return keep(digest, (memo, spent) => {
    if (memo.report !== undefined) return {};
    if (spent + price > lifetime) throw new OverLifetime();
    return { price: price.toString(), ...makeReport() };
  });
}

/** The token that was signed has its signature; another one, which a tab made meanwhile, stays without. */
export function signed(digest, blinded, signature) {
  return keep(digest, (memo) => (memo.blinded === blinded ? { signature } : {}));
}

/** Forgets a token that the server refused to sign, and for which invitation: the next one gets a new token. */
export function forget(digest, refused) {
  return transact("readwrite", (records, store) => {
    const { key, prepared, blinded, inverse, invited, ...others } = records.get(digest) ?? {};
    if (blinded === refused && others.signature === undefined) store.put(others, digest);
  });
}

/** Notes a token and whose it is, and later that the report was accepted. */
export function note(digest, fields) {
  return keep(digest, () => fields);
}
