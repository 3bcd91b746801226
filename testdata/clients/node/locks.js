'use strict';
// Takes and releases locks over TLS through a client that finds the leader by
// itself, while a test kills nodes and replaces certificates; see ../README.md
// under "Locks over TLS".
//   node locks.js KIND NAME

const { setTimeout: sleep } = require('node:timers/promises');
const { token } = require('./env');
const { KINDS, nodes, version } = require('./finders');

const LOCKERS = 2; // callers that contend for the same locks
const SHARED_LOCKS = 3; // lock:shared:0 and so on
const LEASE_MS = 30_000; // longer than any outage: a lock that ends is lost
const KEEP_PAUSE_MS = 200;
const MAX_PAUSE_MS = 40; // between two tries of a lock that is held, and two uses
const ERROR_PAUSE_MS = 20;

let client;

// Waits for a moment, so that others get the lock too.
const pause = () => sleep(Math.random() * MAX_PAUSE_MS);

// Repeats a call until it succeeds.
async function always(call) {
  for (;;) {
    try {
      return await call(client);
    } catch (err) {
      console.log(`err ${String(err.message || err.code || err.name).replaceAll('\n', ' ')}`);
      await sleep(ERROR_PAUSE_MS);
    }
  }
}

// Waits for a lock and returns the token in it. A try whose reply was lost may
// have succeeded, so it looks whose the lock is, and renews its own: the lease
// runs since that try.
async function acquire(lock) {
  const mine = token();
  for (;;) {
    if (await always((c) => c.setNX(lock, mine, LEASE_MS))) return mine;
    if ((await always((c) => c.get(lock))) === mine) {
      await renew(lock, mine);
      return mine;
    }
    await pause();
  }
}

// Begins the lease of a held lock again.
async function renew(lock, mine) {
  if ((await always((c) => c.script('lock_renew', lock, [mine, String(LEASE_MS)]))) !== 1) console.log(`lost ${lock}`);
}

// Takes a lock, raises the lock's counter in the way that loses updates unless a
// lock keeps others out, renews the lease, and releases the lock.
async function use(lock) {
  const mine = await acquire(lock);
  const counter = `${lock}:counter`;
  const fence = await always((c) => c.fence(lock));
  const count = Number((await always((c) => c.get(counter))) ?? 0) + 1;
  await always((c) => c.set(counter, String(count)));
  await renew(lock, mine);
  console.log(`held ${lock} ${fence} ${count}`);
  await always((c) => c.script('lock_release', lock, [mine]));
}

async function main() {
  const [kind, name] = process.argv.slice(2);
  if (!KINDS[kind] || !name || nodes.length === 0) {
    console.error(`usage: COORDD_ADDRS=host:port,... node locks.js ${Object.keys(KINDS).join('|')} NAME`);
    process.exit(2);
  }
  client = await KINDS[kind]();
  console.log(`version ${version(kind)}`);
  console.log(`denied ${await client.set('other:1', 'x').catch((err) => err.message)}`);
  // Neither library reads its certificates again, so another client takes over.
  process.on('SIGHUP', async () => {
    const old = client;
    client = await KINDS[kind]();
    old.close();
  });

  let stopped = false;
  const caller = async (work) => {
    for (let n = 0; !stopped; n++) await work(n);
  };
  const own = `lock:own:${name}`;
  const mine = await acquire(own);
  const callers = [caller(async () => {
    await renew(own, mine);
    console.log(`kept ${await always((c) => c.fence(own))}`);
    await sleep(KEEP_PAUSE_MS);
  })];
  for (let i = 0; i < LOCKERS; i++) {
    callers.push(caller(async (n) => {
      await use(`lock:shared:${(i + n) % SHARED_LOCKS}`);
      await pause();
    }));
  }
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on('end', resolve));
  stopped = true;
  await Promise.all(callers);
  console.log('end');
  client.close();
  process.exit(0);
}

main();
