'use strict';
const Bottleneck = require('bottleneck');
const Redis = require('ioredis');
const { node, unique, checks, want, check, together, Room } = require('../lib');

const limiter = (i, id, options) => new Bottleneck({ id, datastore: 'ioredis', Redis, clearDatastore: false, clientOptions: node(i), ...options });

checks('bottleneck', {
  'three limiters on three nodes run two jobs at a time and never three': async () => {
    const id = unique('bottleneck');
    const room = new Room();
    const limiters = await together(3, async (i) => {
      const l = limiter(i, id, { maxConcurrent: 2 });
      await l.ready();
      return l;
    });
    await together(24, (i) => limiters[i % 3].schedule(() => room.visit(10)));
    want([room.most, room.visits], [2, 24], 'most at a time, visits');
    await Promise.all(limiters.map((l) => l.disconnect(false)));
  },
  'minTime keeps jobs apart across nodes': async () => {
    const id = unique('bottleneck');
    const limiters = await together(2, async (i) => {
      const l = limiter(i, id, { minTime: 60 });
      await l.ready();
      return l;
    });
    const starts = [];
    await together(8, (i) => limiters[i % 2].schedule(async () => { starts.push(Date.now()); }));
    starts.sort((a, b) => a - b);
    check(starts.at(-1) - starts[0] >= 7 * 60 - 40, `8 jobs within ${starts.at(-1) - starts[0]} ms`);
    await Promise.all(limiters.map((l) => l.disconnect(false)));
  },
});
