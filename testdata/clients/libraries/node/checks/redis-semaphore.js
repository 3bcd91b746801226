'use strict';
const Redis = require('ioredis');
const { Mutex, Semaphore, MultiSemaphore, RedlockMutex } = require('redis-semaphore');
const { node, unique, checks, want, together, Room } = require('../lib');

const connect = (i) => new Redis(node(i));
const patience = { acquireTimeout: 30_000, retryInterval: 10, lockTimeout: 5000 };

// Lets callers on three nodes in by a lock each makes, and returns the most at a time.
async function visits(callers, times, make) {
  const room = new Room();
  await together(callers, async (i) => {
    const redis = connect(i);
    const lock = make(redis);
    for (let k = 0; k < times; k += 1) {
      await lock.acquire();
      await room.visit();
      await lock.release();
    }
    redis.disconnect();
  });
  want(room.visits, callers * times, 'visits');
  return room.most;
}

checks('redis-semaphore', {
  'Mutex: one at a time': async () => {
    const key = unique('mutex');
    want(await visits(6, 4, (redis) => new Mutex(redis, key, patience)), 1, 'most at a time');
  },
  'Semaphore of 3: three at a time and never four': async () => {
    const key = unique('semaphore');
    want(await visits(9, 4, (redis) => new Semaphore(redis, key, 3, patience)), 3, 'most at a time');
  },
  'MultiSemaphore of 6 with permits of 2: three at a time': async () => {
    const key = unique('multi');
    want(await visits(9, 3, (redis) => new MultiSemaphore(redis, key, 6, 2, patience)), 3, 'most at a time');
  },
  'RedlockMutex on one address: one at a time': async () => {
    const key = unique('redlock');
    want(await visits(5, 3, (redis) => new RedlockMutex([redis], key, patience)), 1, 'most at a time');
  },
});
