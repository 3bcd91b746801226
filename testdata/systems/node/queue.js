// A producer or a worker of one queue: node queue.js bullmq|bee-queue|node-resque produce|work NAME JOBS.
// Prints `put N` for a job that the library took and `ran N` for one that a worker began.
'use strict';
const [library, role, name, jobs] = process.argv.slice(2);
const [host, port] = process.env.COORDD_ADDR.split(':');
const connection = { host, port: Number(port) };
const say = (word, n) => process.stdout.write(`${word} ${n}\n`);
const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });
const work = async (job) => { say('ran', job.data.n); await pause(20); };

const libraries = {
  bullmq: {
    open() {
      const { Queue, Worker } = require('bullmq');
      // BullMQ's own rule: a worker never gives up on a request.
      if (role === 'work') return new Worker(name, work, { connection: { ...connection, maxRetriesPerRequest: null } });
      return new Queue(name, { connection });
    },
    add: (queue, n) => queue.add('job', { n }, { jobId: `job-${n}` }),
  },
  'bee-queue': {
    open() {
      const Queue = require('bee-queue');
      const retry = (options) => Math.min(options.attempt * 100, 1000);
      const queue = new Queue(name, { redis: { ...connection, retry_strategy: retry }, autoConnect: true });
      if (role === 'work') {
        queue.process(1, work);
        queue.checkStalledJobs(5000);
      }
      return queue;
    },
    add: (queue, n) => queue.createJob({ n }).setId(`job-${n}`).save(),
  },
  'node-resque': {
    open() {
      const { Queue, Worker } = require('node-resque');
      const options = { connection: { pkg: 'ioredis', host, port: Number(port), options: { maxRetriesPerRequest: null } } };
      if (role !== 'work') {
        const queue = new Queue(options);
        queue.opened = queue.connect();
        return queue;
      }
      const count = { perform: (n) => work({ data: { n } }) };
      const worker = new Worker({ ...options, queues: [name], timeout: 100, name: `worker-${process.pid}` }, { count });
      worker.connect().then(() => worker.start());
      return worker;
    },
    add: (queue, n) => queue.opened.then(() => queue.enqueue(name, 'count', [n])),
  },
};

// A request that failed is sent again with the same id, so a job that was taken twice is one.
async function produce(queue, add) {
  for (let n = 0; n < Number(jobs);) {
    try {
      await add(queue, n);
      say('put', n);
      n += 1;
      await pause(10);
    } catch (err) {
      console.error(`${library} add: ${err.message}`);
      await pause(100);
    }
  }
  process.exit(0);
}

const queue = libraries[library].open();
queue.on('error', (err) => console.error(`${library}: ${err.message}`));
if (role === 'produce') produce(queue, libraries[library].add);
