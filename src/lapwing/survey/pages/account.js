// The device's account, in the browser's own database (IndexedDB).
//
// There is one record (memo) per survey, under the survey's digest: the question drawn, the price, the report,
// the credential. The sum of the prices is the ε that the device has spent. The charge and the report are
// written in one strict transaction (it ends after the disk has it) and read back before anything is sent, so
// a crash can neither forget a charge nor draw the coins twice. Transactions of two tabs take turns.
//
// One device is one person's account. Only a hash of the invitation is kept, with the signature: a visitor with
// another invitation, or with none, is told that this device has answered, and not the answer.

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

/** Runs `work(records, store)` inside one transaction. Returns its result once all is on the disk. */
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

/** Returns { memo, spent }: the record of this survey (or undefined), and the prices of all reports. */
export function look(digest) {
  return transact("readonly", (records) => ({ memo: records.get(digest), spent: spentOf(records) }));
}

/** Adds fields to the memo of this survey and returns it. Fields that are there already stay as they are. */
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

/** Draws the question that is asked, once, before any answer is given. Later calls return the same one. */
export function drawQuestion(digest, draw) {
  return keep(digest, (memo) => (memo.question === undefined ? { question: draw() } : {}));
}

/** Charges, randomizes and stores in one step. A report that is there already is returned as it is. */
export function commit(digest, price, lifetime, makeReport) {
  return keep(digest, (memo, spent) => {
    if (memo.report !== undefined) return {};
    if (spent + price > lifetime) throw new OverLifetime();
    return { price: price.toString(), ...makeReport() };
  });
}

/** Stores the signature of this token. If another tab made another token meanwhile, nothing is stored. */
export function signed(digest, blinded, signature) {
  return keep(digest, (memo) => (memo.blinded === blinded ? { signature } : {}));
}

/** Forgets a token that the server refused to sign, and its invitation: the next one gets a new token. */
export function forget(digest, refused) {
  return transact("readwrite", (records, store) => {
    const { key, prepared, blinded, inverse, invited, ...others } = records.get(digest) ?? {};
    if (blinded === refused && others.signature === undefined) store.put(others, digest);
  });
}

/** Stores fields: a token with the hash of its invitation, and later that the report was accepted. */
export function note(digest, fields) {
  return keep(digest, () => fields);
}
