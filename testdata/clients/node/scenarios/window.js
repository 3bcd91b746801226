'use strict';
// Sliding windows over a sorted set, three ways: several commands under a lock,
// one script, and one MULTI. In each the calls that contend must be counted
// exactly, whichever node they went to.

const { RUN_ID, check, raise, together, token, want } = require('../env');
const { locked, release } = require('./lock');

const WINDOW_MS = 60_000;
const CALLERS = 5;
const CALLS = 4; // each caller's

// Lets one call into the window if fewer than limit are in it. Exact only while
// the caller holds a lock: it looks first and adds then.
async function admit(client, window, limit, nowMs) {
  await client.zRemRangeByScore(window, '-inf', nowMs - WINDOW_MS);
  if ((await client.zCard(window)) >= limit) return false;
  await client.zAdd(window, nowMs, token());
  await client.pExpire(window, WINDOW_MS);
  return true;
}

// Five callers that back off with jitter share a limit of 8.
async function windowUnderLock(env) {
  const limit = 8;
  const [lock, window, calls] = [env.key('lock'), env.key('window'), env.key('calls')];
  let admitted = 0;
  await together(CALLERS, async (i) => {
    const client = await env.caller().node(i);
    for (let j = 0; j < CALLS; j++) {
      await locked(env, client, lock, 10_000, async () => {
        if (await admit(client, window, limit, Date.now())) admitted++;
        await raise(client, calls);
      });
    }
  });
  want(admitted, limit, 'calls admitted');
  await env.wantCount(calls, CALLERS * CALLS);

  // A call leaves the window when it is a window's length old. The time is the
  // caller's own, so it can be told rather than waited for.
  const t = Date.now();
  const sliding = env.key('sliding');
  const steps = [[0, true], [10, true], [20, false], [WINDOW_MS - 1, false], [WINDOW_MS, true], [WINDOW_MS + 5, false]];
  for (const [i, [afterMs, wanted]] of steps.entries()) {
    want(await admit(await env.node(i), sliding, 2, t + afterMs), wanted, `the call ${afterMs} ms in`);
  }
}

// The script that takes the lock, trims, adds, counts, sets the expiry and
// unlocks; nil when another holds the lock.
async function windowOneShot(env) {
  const [lock, window] = [env.key('lock'), env.key('window')];
  const call = (client, nowMs) =>
    client.script('window_oneshot', [lock, window], token(), 5000, nowMs, WINDOW_MS, token());
  const other = token();
  want(await (await env.node(0)).setNX(lock, other, 30_000), true, 'SET NX of a free lock');
  for (let i = 0; i < 3; i++) {
    want(await call(await env.node(i), Date.now()), null, `a call on node ${i} while another holds the lock`);
  }
  want(await (await env.node(1)).zCard(window), 0, 'entries of calls that got no lock');
  want(await release(await env.node(2), lock, other), 1, "the holder's release");

  const counts = await together(CALLERS, async (i) => {
    const caller = env.caller();
    const mine = [];
    for (let j = 0; j < CALLS; j++) mine.push(await call(await caller.node(i + j), Date.now()));
    return mine;
  });
  await wantWindow(env, lock, window, counts.flat());
  want(await call(await env.node(1), Date.now() + 2 * WINDOW_MS), 1, 'the count two windows later');
  await scriptKnownEverywhere(env, lock);
}

// Checks what all callers together leave: each count from 1 up once, as many
// entries, an expiry, and a free lock, seen from every node.
async function wantWindow(env, lock, window, counts) {
  const n = CALLERS * CALLS;
  counts.sort((a, b) => a - b);
  want(counts, Array.from({ length: n }, (_, i) => i + 1), 'the counts, each once');
  for (let i = 0; i < 3; i++) {
    const client = await env.node(i);
    want(await client.zCard(window), n, `entries on node ${i}`);
    const leftMs = await client.pTTL(window);
    check(leftMs > 0 && leftMs <= WINDOW_MS, `node ${i} says the window has ${leftMs} ms left`);
    want(await client.exists(lock), 0, `EXISTS of the lock on node ${i}`);
  }
}

// A script loaded through one node runs by its hash through the others; an
// unknown hash is NOSCRIPT.
async function scriptKnownEverywhere(env, key) {
  const hash = await (await env.node(0)).scriptLoad(`return '${RUN_ID}' .. KEYS[1]`);
  for (let i = 0; i < 3; i++) {
    const client = await env.node(i);
    want(await client.evalSha(hash, [key], []), RUN_ID + key, `EVALSHA on node ${i} of a script loaded on node 0`);
    const said = await client.evalSha('0'.repeat(20) + RUN_ID, [key], []).then(() => 'no error', (err) => err.message);
    want(said, 'NOSCRIPT No matching script. Please use EVAL.', `EVALSHA of an unknown script on node ${i}`);
  }
}

// As windowOneShot, with the lock taken first and all else in one MULTI that a
// WATCH ties to the lock.
async function windowMulti(env) {
  const [lock, window] = [env.key('lock'), env.key('window')];
  const counts = await together(CALLERS, async (i) => {
    const caller = env.caller();
    const mine = [];
    for (let j = 0; j < CALLS; j++) {
      const client = await caller.node(i + j);
      let count = await countByMulti(client, lock, window);
      for (let attempt = 0; count === null; attempt++) {
        await env.backOff(attempt);
        count = await countByMulti(client, lock, window);
      }
      mine.push(count);
    }
    return mine;
  });
  await wantWindow(env, lock, window, counts.flat());

  // The lock changes hands, on another node, after the holder has looked: EXEC runs nothing.
  const thief = token();
  const count = await countByMulti(await env.node(0), lock, window, async () => {
    await (await env.node(1)).del(lock);
    const second = await env.caller().node(2);
    want(await second.setNX(lock, thief, 30_000), true, 'SET NX of a deleted lock');
  });
  want(count, null, 'EXEC after the watched lock had changed hands');
  want(await (await env.node(2)).zCard(window), CALLERS * CALLS, 'entries after an aborted MULTI');
  want(await release(await env.node(0), lock, thief), 1, "the second owner's release");
}

// Counts one call; null when the lock was another's, before or meanwhile.
// between runs after the look and before the MULTI.
async function countByMulti(client, lock, window, between = async () => {}) {
  const owner = token();
  if (!(await client.setNX(lock, owner, 10_000))) return null;
  await client.watch(lock);
  if ((await client.get(lock)) !== owner) {
    await client.unwatch();
    return null;
  }
  await between();
  return client.countCall({ window, lock, nowMs: Date.now(), windowMs: WINDOW_MS, member: owner });
}

module.exports = { windowMulti, windowOneShot, windowUnderLock };
