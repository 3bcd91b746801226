'use strict';
const Redis = require('ioredis');
const { RateLimiterRedis } = require('rate-limiter-flexible');
const { node, unique, checks, want, check, together, sleep } = require('../lib');

checks('rate-limiter-flexible', {
  'of 40 requests at once on three nodes exactly 10 pass': async () => {
    const keyPrefix = unique('limit');
    const passed = await together(40, async (i) => {
      const redis = new Redis(node(i));
      const limiter = new RateLimiterRedis({ storeClient: redis, keyPrefix, points: 10, duration: 60 });
      const pass = await limiter.consume('user').then(() => true, (err) => {
        if (err instanceof Error) throw err;
        return false;
      });
      redis.disconnect();
      return pass;
    });
    want(passed.filter(Boolean).length, 10, 'passed');
  },
  'points come back after the duration, and a block holds': async () => {
    const redis = new Redis(node(1));
    const limiter = new RateLimiterRedis({ storeClient: redis, keyPrefix: unique('limit'), points: 2, duration: 1, blockDuration: 2 });
    await limiter.consume('a', 2);
    const refusal = await limiter.consume('a').catch((res) => res);
    check(refusal.msBeforeNext > 1000 && refusal.msBeforeNext <= 2000, `blocked for ${refusal.msBeforeNext} ms`);
    await sleep(refusal.msBeforeNext + 50);
    await limiter.consume('a');
    want((await limiter.get('a')).consumedPoints, 1, 'consumed points');
    redis.disconnect();
  },
});
