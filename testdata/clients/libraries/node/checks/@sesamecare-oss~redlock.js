'use strict';
const Redis = require('ioredis');
const { Redlock } = require('@sesamecare-oss/redlock');
const { node, unique, checks, want, check, together, sleep, Room } = require('../lib');

const connect = (i) => {
  const redis = new Redis(node(i));
  return { redis, redlock: new Redlock([redis], { retryCount: 500, retryDelay: 10, retryJitter: 10 }) };
};

checks('@sesamecare-oss/redlock', {
  'six callers on three nodes hold two resources at once, one caller at a time': async () => {
    const resources = [unique('resource'), unique('resource')];
    const room = new Room();
    await together(6, async (i) => {
      const { redis, redlock } = connect(i);
      for (let k = 0; k < 4; k += 1) {
        const lock = await redlock.acquire(resources, 5000);
        await room.visit();
        await lock.release();
      }
      redis.disconnect();
    });
    want([room.most, room.visits], [1, 24], 'most at a time, visits');
  },
  'using() renews the lease while the work runs': async () => {
    const resource = unique('resource');
    const { redis, redlock } = connect(0);
    const other = connect(2);
    await redlock.using([resource], 400, { automaticExtensionThreshold: 200 }, async (signal) => {
      await sleep(1200);
      check(!signal.aborted, 'the lease was renewed');
      const impatient = new Redlock([other.redis], { retryCount: 0 });
      check(await impatient.acquire([resource], 400).then(() => false, () => true), 'another caller is refused');
    });
    redis.disconnect();
    other.redis.disconnect();
  },
});
