'use strict';
// Redlock's algorithm (redis.io, "Distributed Locks with Redis"), as client
// libraries build it: over one address of a cluster, over three independent
// servers, and over the three nodes of one cluster, where it must not work:
// they are one server, and the second SET NX is rightly refused.

const { check, raise, together, token, want } = require('../env');
const { release } = require('./lock');

// The algorithm over some servers.
class Redlock {
  constructor(servers, key) {
    Object.assign(this, { servers, key, quorum: Math.floor(servers.length / 2) + 1 });
  }

  // Makes one attempt: the owner's token and for how many ms the lock is good,
  // or null when there was no quorum; then nothing stays taken.
  async try(leaseMs) {
    const owner = token();
    const start = performance.now();
    const grants = await together(this.servers.length, (i) => this.servers[i].setNX(this.key, owner, leaseMs));
    const driftMs = leaseMs / 100 + 2;
    const goodMs = leaseMs - (performance.now() - start) - driftMs;
    if (grants.filter(Boolean).length >= this.quorum && goodMs > 0) return { owner, goodMs };
    await this.unlock(owner);
    return null;
  }

  // Releases on every server, and counts those where it was the owner's.
  async unlock(owner) {
    const freed = await together(this.servers.length, (i) => release(this.servers[i], this.key, owner));
    return freed.reduce((sum, n) => sum + n, 0);
  }
}

// Callers raise a counter under the lock, each through its own connections.
async function contend(env, counter, view) {
  const callers = 4;
  const rounds = 4;
  await together(callers, async (i) => {
    const { lock, home } = await view(i);
    for (let j = 0; j < rounds; j++) {
      let held = await lock.try(10_000);
      for (let attempt = 0; held === null; attempt++) {
        await env.backOff(attempt);
        held = await lock.try(10_000);
      }
      await raise(home, counter);
      const n = await lock.unlock(held.owner);
      check(n >= lock.quorum, `only ${n} servers still had the owner's lock`);
    }
  });
  return callers * rounds;
}

// Checks that of two holders one is refused, until the other unlocks.
async function excludes(first, second) {
  const leaseMs = 20_000;
  const held = await first.try(leaseMs);
  check(held !== null && held.goodMs > 0 && held.goodMs < leaseMs, `the free lock: ${JSON.stringify(held)}`);
  want(await second.try(leaseMs), null, 'what a second holder got');
  want(await first.unlock(held.owner), first.servers.length, "servers that still had the first holder's lock");
  const next = await second.try(leaseMs);
  check(next !== null, 'the lock was not free after its unlock');
  await second.unlock(next.owner);
}

// Each holder uses one address of the cluster; any will do.
async function redlockOneAddress(env) {
  const key = env.key('lock');
  const view = async (i) => {
    const home = await env.caller().node(i);
    return { lock: new Redlock([home], key), home };
  };
  await excludes((await view(0)).lock, (await view(1)).lock);
  const counter = env.key('counter');
  await env.wantCount(counter, await contend(env, counter, view));
}

// Three independent servers, of which a majority decides.
async function redlockSingles(env) {
  const key = env.key('lock');
  const view = async () => {
    const singles = await env.caller().singles();
    return { lock: new Redlock(singles, key), home: singles[0] };
  };
  const [{ lock }, { lock: second }] = [await view(), await view()];
  want(lock.servers.length, 3, 'servers named by COORDD_SINGLES');
  await excludes(lock, second);
  // One server lost to a stranger leaves a quorum; two do not.
  for (const lost of [1, 2]) {
    want(await lock.servers[lost].setNX(key, 'stranger', 20_000), true, `SET NX on single ${lost}, which is independent`);
    const held = await lock.try(10_000);
    want(held !== null, lost === 1, `a quorum with ${lost} of 3 servers lost`);
    if (held !== null) await lock.unlock(held.owner);
    want(await lock.servers[0].exists(key), 0, 'what an attempt left on single 0');
  }
  want(await lock.unlock('stranger'), 2, "the stranger's locks");
  const counter = env.key('counter');
  const raised = await contend(env, counter, view);
  want(await lock.servers[0].get(counter), String(raised), 'the counter');
}

// Three addresses of one cluster are one server, so one of three SET NX is
// granted, no quorum is reached, and nothing stays taken.
async function redlockClusterRefused(env) {
  const lock = new Redlock(await env.caller().nodes(), env.key('lock'));
  want(lock.servers.length, 3, 'nodes named by COORDD_ADDRS');
  const owner = token();
  for (const [i, server] of lock.servers.entries()) {
    want(await server.setNX(lock.key, owner, 20_000), i === 0, `SET NX number ${i + 1}`);
  }
  want(await lock.unlock(owner), 1, 'times that the lock was released');
  for (let n = 0; n < 3; n++) {
    want(await lock.try(20_000), null, 'what Redlock got over three nodes of one cluster');
    for (const [i, server] of lock.servers.entries()) {
      want(await server.exists(lock.key), 0, `what an attempt that failed left on node ${i}`);
    }
  }
}

module.exports = { redlockClusterRefused, redlockOneAddress, redlockSingles };
