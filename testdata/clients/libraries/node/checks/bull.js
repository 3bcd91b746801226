'use strict';
const Queue = require('bull');
const { node, unique, checks, want, check, together, until } = require('../lib');

const open = (name, i, options = {}) => new Queue(name, { redis: node(i), ...options });

checks('bull', {
  '40 jobs, workers on three nodes: each runs once, all complete': async () => {
    const name = unique('bull');
    const ran = [];
    const queues = await together(3, async (i) => {
      const queue = open(name, i);
      queue.process(2, async (job) => { ran.push(job.data.n); });
      await queue.isReady();
      return queue;
    });
    for (let n = 0; n < 40; n += 1) await queues[n % 3].add({ n });
    await until(async () => (await queues[0].getCompletedCount()) === 40, '40 completed jobs');
    want(ran.sort((a, b) => a - b), Array.from({ length: 40 }, (_, n) => n), 'the jobs that ran');
    await Promise.all(queues.map((q) => q.close()));
  },
  'a delayed job waits, a failing one is tried again, an event reaches another node': async () => {
    const name = unique('bull');
    const [producer, worker] = [open(name, 0), open(name, 2)];
    const finished = [];
    producer.on('global:completed', (id) => finished.push(String(id)));
    await producer.isReady();
    let delayedAfter = 0;
    let tries = 0;
    const begun = Date.now();
    worker.process('*', async (job) => {
      if (job.name === 'delayed') delayedAfter = Date.now() - begun;
      if (job.name === 'flaky') {
        tries += 1;
        if (tries < 3) throw new Error('not yet');
      }
    });
    const delayed = await producer.add('delayed', {}, { delay: 400 });
    const flaky = await producer.add('flaky', {}, { attempts: 3, backoff: 30 });
    await until(() => finished.includes(String(delayed.id)) && finished.includes(String(flaky.id)), 'both events');
    check(delayedAfter >= 395, `the delayed job ran after ${delayedAfter} ms`);
    want(tries, 3, 'tries');
    await Promise.all([producer.close(), worker.close()]);
  },
});
