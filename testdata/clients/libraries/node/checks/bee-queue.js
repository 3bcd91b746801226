'use strict';
const Queue = require('bee-queue');
const { node, unique, checks, want, check, together, until } = require('../lib');

const open = (name, i, options = {}) => new Queue(name, { redis: node(i), activateDelayedJobs: true, ...options });

checks('bee-queue', {
  '40 jobs, workers on three nodes: each runs once, all succeed': async () => {
    const name = unique('bee');
    const ran = [];
    const queues = await together(3, async (i) => {
      const queue = open(name, i);
      await queue.ready();
      queue.process(2, async (job) => { ran.push(job.data.n); });
      return queue;
    });
    for (let n = 0; n < 40; n += 1) await queues[n % 3].createJob({ n }).save();
    await until(async () => (await queues[1].checkHealth()).succeeded === 40, '40 succeeded jobs');
    want(ran.sort((a, b) => a - b), Array.from({ length: 40 }, (_, n) => n), 'the jobs that ran');
    await Promise.all(queues.map((q) => q.close()));
  },
  'a delayed job waits, and its result reaches the producer on another node': async () => {
    const name = unique('bee');
    const [producer, worker] = [open(name, 0), open(name, 1)];
    await Promise.all([producer.ready(), worker.ready()]);
    worker.process(async (job) => job.data.a + job.data.b);
    const begun = Date.now();
    const job = producer.createJob({ a: 2, b: 3 }).delayUntil(begun + 400);
    const result = new Promise((resolve) => { job.on('succeeded', resolve); });
    await job.save();
    want(await result, 5, 'the result');
    check(Date.now() - begun >= 395, 'it waited');
    await Promise.all([producer.close(), worker.close()]);
  },
});
