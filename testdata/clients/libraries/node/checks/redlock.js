'use strict';
const Redis = require('ioredis');
const Redlock = require('redlock');
const { node, unique, checks, want, check, together, sleep, Room } = require('../lib');

// One address of the cluster: its nodes are one server.
const connect = (i) => {
  const redis = new Redis(node(i));
  return { redis, redlock: new Redlock([redis], { retryCount: 500, retryDelay: 10, retryJitter: 10 }) };
};

checks('redlock', {
  'six callers on three nodes hold the lock one at a time': async () => {
    const resource = unique('resource');
    const room = new Room();
    await together(6, async (i) => {
      const { redis, redlock } = connect(i);
      for (let k = 0; k < 4; k += 1) {
        const lock = await redlock.lock(resource, 5000);
        await room.visit();
        await lock.unlock();
      }
      redis.disconnect();
    });
    want([room.most, room.visits], [1, 24], 'most at a time, visits');
  },
  'a lock that is extended outlives its first lease, and is refused to others': async () => {
    const resource = unique('resource');
    const [a, b] = [connect(0), connect(1)];
    let lock = await a.redlock.lock(resource, 300);
    for (let k = 0; k < 4; k += 1) {
      await sleep(150);
      lock = await lock.extend(300);
    }
    const impatient = new Redlock([b.redis], { retryCount: 0 });
    const refused = await impatient.lock(resource, 300).then(() => false, (err) => err.name === 'LockError');
    check(refused, 'the second caller is refused with LockError');
    await lock.unlock();
    await (await impatient.lock(resource, 300)).unlock();
    a.redis.disconnect();
    b.redis.disconnect();
  },
});
