'use strict';
// The token bucket in Redisson's shape: settings in a hash, what was given out
// in a sorted set of packed members, assert() for what must not be asked.

const { check, together, token, want } = require('../env');

// The five keys of one client's view of a token bucket.
class Bucket {
  constructor(env, name, client) {
    this.env = env;
    this.keys = ['', ':left', ':given', `:left:${client}`, `:given:${client}`].map((part) => env.key(name + part));
  }

  // Sets the rate: 1, or 0 when it was set before.
  setRate(client, rate, intervalMs, perClient) {
    return client.script('bucket_set_rate', [this.keys[0]], rate, intervalMs, perClient ? 1 : 0);
  }

  // Asks for permits at a time of the caller's: null when given, else the ms to wait.
  take(client, permits, nowMs) {
    return client.script('bucket_take', this.keys, permits, nowMs, token());
  }
}

// Checks that a call fails as Redis 7 words an assert() that fails in a script.
async function wantAssert(promise, text) {
  const said = await promise.then((reply) => `no error but ${reply}`, (err) => err.message);
  const wanted = new RegExp(`^ERR user_script:\\d+: ${text} script: [0-9a-f]{40}, on @user_script:\\d+\\.$`);
  check(wanted.test(said), `an assert() said ${JSON.stringify(said)}, want ${wanted}`);
}

// Asserts reach the caller in Redis's words; callers who contend never get more
// than the rate; permits come back after the interval.
async function tokenBucket(env) {
  const rate = 10;
  const intervalMs = 60_000;
  const bucket = new Bucket(env, 'shared', 'a');
  await wantAssert(bucket.take(await env.node(0), 1, Date.now()), 'the bucket has no rate yet');
  const firsts = await together(5, async (i) => bucket.setRate(await env.caller().node(i), rate, intervalMs, false));
  want(firsts.sort(), [0, 0, 0, 0, 1], 'callers that set the rate');
  want(
    await (await env.node(1)).hGetAll(bucket.keys[0]),
    { rate: String(rate), interval: String(intervalMs), type: '0' },
    "the bucket's settings",
  );
  await wantAssert(bucket.take(await env.node(1), rate + 1, Date.now()), 'more permits wanted than the rate allows');

  let given = 0;
  await together(5, async (i) => {
    const caller = env.caller();
    const permits = 1 + (i % 2); // some ask for one permit, some for two
    for (let j = 0; j < 5; j++) {
      const waitMs = await bucket.take(await caller.node(i + j), permits, Date.now());
      if (waitMs === null) given += permits;
      else check(waitMs > 0 && waitMs <= intervalMs, `a refused caller was told to wait ${waitMs} ms`);
    }
  });
  // Callers of one permit ask on until nothing is left, so all are given.
  want(given, rate, 'permits given');
  want(await (await env.node(2)).get(bucket.keys[1]), '0', 'permits left');
  // All come back once the interval is over, to one caller that wants all.
  const later = await bucket.take(await env.node(2), rate, Date.now() + intervalMs + 1000);
  want(later, null, 'the wait for all permits after the interval');
  await bucketPerClient(env);
}

// With type 1 every client has the whole rate, at told times.
async function bucketPerClient(env) {
  const [a, b] = [new Bucket(env, 'each', 'a'), new Bucket(env, 'each', 'b')];
  want(await a.setRate(await env.node(0), 2, 10_000, true), 1, 'setting the rate');
  const t = Date.now();
  const steps = [
    [a, 0, null], [a, 4000, null], [a, 5000, 5000],
    [b, 5000, null], [b, 5001, null], [b, 5002, 9998],
    [a, 9999, 1], [a, 10_000, null], [a, 10_001, 3999],
  ];
  for (const [i, [who, afterMs, waitMs]] of steps.entries()) {
    want(await who.take(await env.node(i), 1, t + afterMs), waitMs, `the wait told to request ${i}`);
  }
}

module.exports = { tokenBucket };
