'use strict';
const Redis = require('ioredis');
const { node, unique, checks, want, check, together, sleep, Room } = require('../lib');

const connect = (i) => new Redis({ ...node(i), lazyConnect: false });

checks('ioredis', {
  'a lock taken by SET NX PX and released by a script has one holder at a time': async () => {
    const key = unique('lock');
    const room = new Room();
    await together(6, async (i) => {
      const redis = connect(i);
      redis.defineCommand('release', { numberOfKeys: 1, lua: "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0" });
      for (let done = 0; done < 5;) {
        const me = unique('owner');
        if ((await redis.set(key, me, 'PX', 5000, 'NX')) === 'OK') {
          await room.visit(3);
          want(await redis.release(key, me), 1, 'the release');
          done += 1;
        } else {
          await sleep(5 + Math.random() * 10);
        }
      }
      redis.disconnect();
    });
    want([room.most, room.visits], [1, 30], 'most at a time, visits');
  },
  'a sliding window by MULTI admits exactly its limit': async () => {
    const key = unique('window');
    const admitted = await together(30, async (i) => {
      const redis = connect(i);
      const now = Date.now();
      const replies = await redis.multi().zremrangebyscore(key, 0, now - 60_000).zadd(key, now, `${i}`).zcard(key).pexpire(key, 60_000).exec();
      redis.disconnect();
      return replies[2][1] <= 10;
    });
    want(admitted.filter(Boolean).length, 10, 'admitted');
  },
  'a pipeline through a follower comes back in order': async () => {
    const key = unique('list');
    const redis = connect(2);
    const pipeline = redis.pipeline();
    for (let i = 0; i < 500; i += 1) pipeline.rpush(key, i);
    const replies = await pipeline.exec();
    check(replies.every(([err, length], i) => err === null && length === i + 1), 'the lengths are in order');
    redis.disconnect();
  },
});
