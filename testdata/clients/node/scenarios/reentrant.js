'use strict';
// The reentrant lock in Redisson's shape: a hash that counts its owner's
// entries, and a channel on which an unlock wakes who waits.

const { check, raise, together, token, want } = require('../env');

const LEASE_MS = 30_000;

// One owner's view of a reentrant lock, on one connection.
class Reentrant {
  constructor(env, client, lock) {
    Object.assign(this, { env, client, lock, channel: `${lock}:freed`, owner: `${token()}:1` });
  }

  // Tries once: null when in, else the ms that the holder's lease still has.
  enter() {
    return this.client.script('reentrant_lock', [this.lock], LEASE_MS, this.owner);
  }

  // Sends one unlock under a request name: 1 freed, 0 still held, null not the owner's.
  leave(request = token()) {
    const latch = this.env.key(`latch:${request}`);
    return this.client.script('reentrant_unlock', [this.lock, this.channel, latch], 0, LEASE_MS, this.owner, 'PUBLISH', 5000);
  }

  // Subscribes, tries, and tries again at each wake-up. It never polls: if a
  // wake-up is lost it waits for as long as the lease, and so fails.
  async enterWaiting(refused = () => {}) {
    if ((await this.enter()) === null) return;
    let news = 0; // messages that came and were not yet acted upon
    let wake = () => {};
    const unsubscribe = await this.client.subscribe(this.channel, () => {
      news++;
      wake();
    });
    try {
      for (;;) {
        news = 0;
        const leftMs = await this.enter();
        if (leftMs === null) return;
        refused();
        if (news > 0) continue;
        const leaseOver = new AbortController();
        const woken = new Promise((resolve) => { wake = resolve; });
        await Promise.race([woken, this.untilLeaseOver(leftMs, leaseOver.signal)]);
        leaseOver.abort();
      }
    } finally {
      await unsubscribe();
    }
  }

  // Resolves after ms, or when nobody needs to know any more; rejects when the
  // scenario's time is over.
  untilLeaseOver(ms, signal) {
    return new Promise((resolve, reject) => {
      const scenario = this.env.stopped.signal;
      const late = () => reject(new Error('a waiter was not woken'));
      const timer = setTimeout(resolve, ms);
      scenario.addEventListener('abort', late, { once: true });
      signal.addEventListener('abort', () => {
        clearTimeout(timer);
        scenario.removeEventListener('abort', late);
        resolve();
      }, { once: true });
    });
  }
}

// Entering twice needs leaving twice; nobody else gets in or can leave for the
// owner; a waiter on another node is woken; then six callers raise a counter
// under it, woken by nothing but messages.
async function reentrantLock(env) {
  const lock = env.key('lock');
  const mine = new Reentrant(env, await env.node(0), lock);
  const other = new Reentrant(env, await env.caller().node(1), lock);
  await entersTwice(mine, other);
  await wakesWaiter(env, mine, other);

  const callers = 6;
  const rounds = 4;
  const counter = env.key('counter');
  await together(callers, async (i) => {
    const client = await env.caller().node(i);
    const one = new Reentrant(env, client, lock);
    for (let j = 0; j < rounds; j++) {
      await one.enterWaiting();
      await raise(client, counter);
      want(await one.leave(), 1, "the owner's unlock");
    }
  });
  await env.wantCount(counter, callers * rounds);
}

// Leaves the lock held once, by mine.
async function entersTwice(mine, other) {
  want(await mine.enter(), null, "the owner's first entry");
  want(await mine.enter(), null, "the owner's second entry");
  const leftMs = await other.enter();
  check(leftMs > 0 && leftMs <= LEASE_MS, `a second owner was told ${leftMs}, want the lease that is left`);
  want(await other.leave(), null, "a wrong owner's unlock");
  const request = token();
  want(await mine.leave(request), 0, 'the inner unlock');
  want(await mine.leave(request), 0, 'the same request again');
  want(await other.client.hGet(mine.lock, mine.owner), '1', 'entries that the owner holds');
}

// Frees the lock, which mine holds once, when the waiter on another node has
// been refused after it subscribed.
async function wakesWaiter(env, mine, waiter) {
  let isIn = false;
  let entered;
  const waiting = new Promise((resolve) => {
    entered = waiter.enterWaiting(resolve).then(() => { isIn = true; });
    entered.catch(() => {}); // reported where it is awaited
  });
  await Promise.race([waiting, entered]);
  check(!isIn, 'the waiter came in while the lock was held');
  want(await mine.leave(), 1, 'the last unlock');
  const limit = new AbortController();
  const late = mine.untilLeaseOver(5000, limit.signal); // far less than the lease
  await Promise.race([entered, late]);
  limit.abort();
  check(isIn, 'the waiter on another node was not woken within 5 s of the unlock');
  want(await waiter.leave(), 1, "the woken owner's unlock");
}

module.exports = { reentrantLock };
