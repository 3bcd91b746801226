'use strict';
// A scheduled job that must run once, and a stock that must not be oversold.

const { check, raise, together, want } = require('../env');

// At each tick all workers wake together and one of them runs the job, by SET NX
// with a TTL on the tick's mark; a worker that comes late finds it done.
async function scheduledJob(env) {
  const workers = 6;
  const ticks = 5;
  const runs = env.key('runs');
  const callers = Array.from({ length: workers }, () => env.caller());
  for (let tick = 0; tick < ticks; tick++) {
    const mark = env.key(`job:${tick}`);
    const ran = await together(workers, async (i) => {
      const client = await callers[i].node(i + tick);
      if (!(await client.setNX(mark, `worker ${i}`, 60_000))) return false;
      await raise(client, runs); // the job: safe without a lock if it runs once
      return true;
    });
    want(ran.filter(Boolean).length, 1, `workers that ran the job of tick ${tick}`);
    for (let i = 0; i < 3; i++) {
      const client = await env.node(i);
      want(await client.setNX(mark, 'late', 60_000), false, `a late worker on node ${i}`);
      want(await client.get(mark), `worker ${ran.indexOf(true)}`, `who ran tick ${tick}, on node ${i}`);
    }
  }
  await env.wantCount(runs, ticks);

  // The same by a script that answers who has the run.
  const claim = env.key('claim');
  const claims = await together(workers, async (i) =>
    (await callers[i].node(i)).script('job_claim', [claim], `worker ${i}`, 60_000));
  const holder = claims[0][1];
  for (const [i, told] of claims.entries()) {
    want(told, [holder === `worker ${i}` ? 1 : 0, holder], `what worker ${i} was told`);
  }
  want(claims.filter(([mine]) => mine === 1).length, 1, 'workers that claimed the run');
}

// Buyers want more than there is; exactly what there is gets sold, by the script
// and by WATCH and MULTI, and nobody ever sees less than nothing.
async function stock(env) {
  await sellOut(env, 'script', sellByScript);
  await sellOut(env, 'watch', sellByWatch);
}

// Runs six buyers, some of one piece and some of two, until each has been
// refused, while a watcher looks at the stock.
async function sellOut(env, name, sell) {
  const pieces = 21;
  const [stockKey, sales] = [env.key(`${name}:stock`), env.key(`${name}:sales`)];
  await (await env.node(0)).set(stockKey, String(pieces));
  const watcher = { over: false };
  const watched = watchStock(env, stockKey, watcher);
  watched.catch(() => {}); // reported where it is awaited
  let sold = 0;
  let times = 0;
  try {
    await together(6, async (i) => {
      const caller = env.caller();
      const n = 1 + (i % 2);
      for (let j = 0; sold <= pieces; j++) {
        if (!(await sell(env, await caller.node(i + j), stockKey, sales, `${i}:${j}`, n))) return;
        sold += n;
        times++;
      }
    });
  } finally {
    watcher.over = true;
  }
  await watched;
  want(sold, pieces, `pieces sold by ${name}`);
  want(await (await env.node(1)).hLen(sales), times, `sales written down by ${name}`);
  await env.wantCount(stockKey, 0);
}

// Reads the stock from every node in turn: it only falls, and not below zero.
async function watchStock(env, stockKey, watcher) {
  let last = Infinity;
  for (let i = 0; !watcher.over; i++) {
    const n = Number(await (await env.node(i)).get(stockKey));
    check(n >= 0 && n <= last, `the stock was seen at ${n} after ${last}`);
    last = n;
    await env.pause(2);
  }
}

async function sellByScript(env, client, stockKey, sales, sale, n) {
  const left = await client.script('stock_take', [stockKey, sales], n, sale);
  check(Number.isInteger(left) && left >= -1, `a sale answered ${left}`);
  return left >= 0;
}

// Tries until it has sold or there is not enough: EXEC runs nothing whenever
// another buyer was faster, on whichever node.
async function sellByWatch(env, client, stockKey, sales, sale, n) {
  for (let attempt = 0; ; attempt++) {
    await client.watch(stockKey);
    const left = Number(await client.get(stockKey)) - n;
    if (left < 0) {
      await client.unwatch();
      return false;
    }
    if (await client.sell({ stock: stockKey, left, sales, sale, n })) return true;
    await env.backOff(attempt);
  }
}

module.exports = { scheduledJob, stock };
