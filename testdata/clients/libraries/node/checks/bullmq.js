'use strict';
const { Queue, Worker, QueueEvents, FlowProducer } = require('bullmq');
const { node, unique, checks, want, check, together, until } = require('../lib');

const connection = (i) => ({ connection: { ...node(i), maxRetriesPerRequest: null } });

// Runs workers on three nodes that note what they process.
async function workers(name, process, options = {}) {
  const list = await together(3, async (i) => {
    const worker = new Worker(name, process, { ...connection(i), concurrency: 2, ...options });
    await worker.waitUntilReady();
    return worker;
  });
  return () => Promise.all(list.map((w) => w.close()));
}

checks('bullmq', {
  '40 jobs, workers on three nodes: each runs once, all complete': async () => {
    const name = unique('bullmq').replace(':', '-');
    const queue = new Queue(name, connection(0));
    const ran = [];
    const close = await workers(name, async (job) => { ran.push(job.data.n); });
    await queue.addBulk(Array.from({ length: 40 }, (_, n) => ({ name: 'job', data: { n } })));
    await until(async () => (await queue.getCompletedCount()) === 40, '40 completed jobs');
    want(ran.sort((a, b) => a - b), Array.from({ length: 40 }, (_, n) => n), 'the jobs that ran');
    await close();
    await queue.close();
  },
  'a delayed job waits, a failing one is tried again with backoff, priorities hold': async () => {
    const name = unique('bullmq').replace(':', '-');
    const queue = new Queue(name, connection(1));
    const events = new QueueEvents(name, connection(2));
    await events.waitUntilReady();
    const order = [];
    const begun = Date.now();
    let delayedAfter = 0;
    let tries = 0;
    for (const priority of [3, 1, 2]) await queue.add('ordered', { priority }, { priority });
    const delayed = await queue.add('delayed', {}, { delay: 500 });
    const flaky = await queue.add('flaky', {}, { attempts: 3, backoff: { type: 'fixed', delay: 50 } });
    const worker = new Worker(name, async (job) => {
      if (job.name === 'ordered') order.push(job.data.priority);
      if (job.name === 'delayed') delayedAfter = Date.now() - begun;
      if (job.name === 'flaky') {
        tries += 1;
        if (tries < 3) throw new Error('not yet');
      }
    }, connection(0));
    await delayed.waitUntilFinished(events, 20_000);
    await flaky.waitUntilFinished(events, 20_000);
    want([order, tries], [[1, 2, 3], 3], 'order, tries');
    check(delayedAfter >= 495, `the delayed job ran after ${delayedAfter} ms`);
    await Promise.all([worker.close(), events.close()]);
    await queue.close();
  },
  'a flow: the parent runs after all of its children': async () => {
    const name = unique('bullmq').replace(':', '-');
    const ran = [];
    const flow = new FlowProducer(connection(1));
    await flow.add({ name: 'parent', queueName: name, children: [1, 2, 3].map((n) => ({ name: `child${n}`, queueName: name, data: {} })) });
    const close = await workers(name, async (job) => { ran.push(job.name); });
    await until(() => ran.includes('parent'), 'the parent');
    want(ran.at(-1), 'parent', 'the last to run');
    want(ran.length, 4, 'jobs that ran');
    await close();
    await flow.close();
  },
  'getWorkersCount through each node counts the workers of all': async () => {
    const name = unique('bullmq').replace(':', '-');
    const close = await workers(name, async () => {});
    const counts = await together(3, async (i) => {
      const queue = new Queue(name, connection(i));
      const n = await queue.getWorkersCount();
      await queue.close();
      return n;
    });
    want(counts, [3, 3, 3], 'counts');
    await close();
  },
  'a limiter of 5 jobs a second holds across workers on three nodes': async () => {
    const name = unique('bullmq').replace(':', '-');
    const queue = new Queue(name, connection(0));
    const starts = [];
    const close = await workers(name, async () => { starts.push(Date.now()); }, { limiter: { max: 5, duration: 1000 } });
    await queue.addBulk(Array.from({ length: 12 }, (_, n) => ({ name: 'job', data: { n } })));
    await until(async () => (await queue.getCompletedCount()) === 12, '12 completed jobs');
    starts.sort((a, b) => a - b);
    check(starts.at(-1) - starts[0] >= 1900, `12 jobs within ${starts.at(-1) - starts[0]} ms`);
    await close();
    await queue.close();
  },
});
