'use strict';
// The plain lock, SET NX PX with a script that releases it: across nodes, under
// contention, past its lease, and with a watchdog that renews it.

const { CLOCK_SLACK_MS, check, raise, together, token, want } = require('../env');

// Gives a lock back: 1, or 0 when it is not the owner's.
function release(client, key, owner) {
  return client.script('lock_release', [key], owner);
}

// Runs work while it holds the lock, which it waits for with backoff.
async function locked(env, client, key, leaseMs, work) {
  const owner = token();
  for (let attempt = 0; !(await client.setNX(key, owner, leaseMs)); attempt++) await env.backOff(attempt);
  try {
    await work();
  } finally {
    want(await release(client, key, owner), 1, 'the release of a held lock');
  }
}

// Taken on one node, refused on the others, not given to a wrong owner, released
// through the third; then six callers raise a counter non-atomically; then a
// lease ends by itself, not early.
async function lockAcrossNodes(env) {
  const key = env.key('lock');
  const owner = token();
  want(await (await env.node(0)).setNX(key, owner, 30_000), true, 'SET NX of a free lock');
  for (let i = 0; i < 3; i++) {
    const client = await env.node(i);
    want(await client.setNX(key, token(), 30_000), false, `SET NX of a held lock on node ${i}`);
    want(await client.get(key), owner, `the holder on node ${i}`);
    const leftMs = await client.pTTL(key);
    check(leftMs > 20_000 && leftMs <= 30_000, `node ${i} says the lease of 30 s has ${leftMs} ms left`);
    want(await release(client, key, token()), 0, `a wrong owner's release on node ${i}`);
  }
  want(await release(await env.node(2), key, owner), 1, "the owner's release");
  want(await release(await env.node(1), key, owner), 0, 'a second release');
  want(await (await env.node(0)).exists(key), 0, 'EXISTS of a released lock');

  const callers = 6;
  const rounds = 5;
  const counter = env.key('counter');
  await together(callers, async (i) => {
    const client = await env.caller().node(i);
    for (let j = 0; j < rounds; j++) {
      await locked(env, client, key, 10_000, () => raise(client, counter));
    }
  });
  await env.wantCount(counter, callers * rounds);
  await leaseEnds(env, env.key('lease'));
}

// A holder that vanished blocks others for its lease, not less.
async function leaseEnds(env, key) {
  const leaseMs = 300;
  const [first, second] = [await env.node(0), await env.node(1)];
  const sent = performance.now(); // before the lease can have begun
  want(await first.setNX(key, token(), leaseMs), true, 'SET NX of a free lock');
  for (;;) {
    const got = await second.setNX(key, token(), leaseMs);
    const waitedMs = performance.now() - sent;
    check(!got || waitedMs >= leaseMs - CLOCK_SLACK_MS, `a lease of ${leaseMs} ms was over after ${waitedMs} ms`);
    if (got) return;
    check(waitedMs < leaseMs + 5000, `a lease of ${leaseMs} ms was not over after ${waitedMs} ms`);
    await env.pause(5);
  }
}

// A renewal at each third of the lease keeps the lock for as long as its holder
// lives, and no longer; a holder that lost it cannot renew.
async function watchdog(env) {
  const leaseMs = 1500;
  const holdMs = 3000;
  const key = env.key('lock');
  const [first, second] = [token(), token()];
  want(await (await env.node(0)).setNX(key, first, leaseMs), true, 'SET NX of a free lock');
  let lastRenewal = performance.now();
  let alive = true;

  const renew = async () => {
    const end = performance.now() + holdMs;
    for (let i = 1; performance.now() < end; i++) {
      await env.pause(leaseMs / 3);
      lastRenewal = performance.now();
      want(await (await env.node(i)).script('lock_renew', [key], first, leaseMs), 1, `renewal ${i}`);
    }
    alive = false; // from here on the holder is as good as dead
  };
  const contend = async () => {
    for (let i = 0; !(await (await env.node(i)).setNX(key, second, leaseMs)); i++) {
      check(alive || performance.now() - lastRenewal < leaseMs + 5000, 'the lock outlived its dead holder');
      await env.pause(20);
    }
    check(!alive, 'the lock was given away while its watchdog renewed it');
    const waitedMs = performance.now() - lastRenewal;
    check(waitedMs >= leaseMs - CLOCK_SLACK_MS, `the lease of ${leaseMs} ms was over ${waitedMs} ms after the last renewal`);
  };
  await Promise.all([renew(), contend()]);

  want(await (await env.node(2)).script('lock_renew', [key], first, 600_000), 0, 'the renewal of a lost lock');
  const leftMs = await (await env.node(0)).pTTL(key);
  check(leftMs <= 2000, `a stranger's renewal changed the lease: ${leftMs} ms left`);
  want(await release(await env.node(1), key, second), 1, "the second owner's release");
}

module.exports = { lockAcrossNodes, locked, release, watchdog };
