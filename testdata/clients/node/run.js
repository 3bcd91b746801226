'use strict';
// Runs the scenario programs with one client library of npm, unmodified:
//   node run.js redis|ioredis [scenario ...]
// The environment names the servers: COORDD_ADDRS the client addresses of the
// nodes of one cluster, COORDD_SINGLES those of three independent single nodes
// (without it the scenario over them is skipped, and says so).
// Prints a line a scenario and exits 1 if one failed, 2 for wrong usage.

const { Env, addresses, reach } = require('./env');

// How long one scenario may take; a healthy one takes a fraction of it.
const LIMIT_MS = 15_000;

const SCENARIOS = [
  ['lock-across-nodes', require('./scenarios/lock').lockAcrossNodes],
  ['window-under-lock', require('./scenarios/window').windowUnderLock],
  ['window-one-shot', require('./scenarios/window').windowOneShot],
  ['window-multi', require('./scenarios/window').windowMulti],
  ['reentrant-lock', require('./scenarios/reentrant').reentrantLock],
  ['token-bucket', require('./scenarios/bucket').tokenBucket],
  ['watchdog', require('./scenarios/lock').watchdog],
  ['redlock-one-address', require('./scenarios/redlock').redlockOneAddress],
  ['redlock-singles', require('./scenarios/redlock').redlockSingles],
  ['redlock-cluster-refused', require('./scenarios/redlock').redlockClusterRefused],
  ['scheduled-job', require('./scenarios/jobstock').scheduledJob],
  ['stock', require('./scenarios/jobstock').stock],
];

function usage(message) {
  console.error(message);
  process.exit(2);
}

// Runs one scenario in its own world; a rejection is its failure.
async function runOne(library, name, scenario) {
  const env = new Env(library, name);
  let timer;
  const tooLate = new Promise((_, reject) => {
    timer = setTimeout(() => {
      env.stop(); // whatever still waits ends with an error
      reject(new Error(`not done after ${LIMIT_MS} ms`));
    }, LIMIT_MS);
  });
  try {
    await Promise.race([scenario(env), tooLate]);
  } finally {
    clearTimeout(timer);
    await env.end();
  }
}

async function main() {
  const [library, ...names] = process.argv.slice(2);
  if (library !== 'redis' && library !== 'ioredis') usage('usage: node run.js redis|ioredis [scenario ...]');
  if (addresses('COORDD_ADDRS').length === 0) {
    usage('COORDD_ADDRS must name the nodes, as in 127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381');
  }
  for (const name of names) {
    if (!SCENARIOS.some(([known]) => known === name)) usage(`no scenario is named ${JSON.stringify(name)}`);
  }
  try {
    await Promise.all([...addresses('COORDD_ADDRS'), ...addresses('COORDD_SINGLES')].map(reach));
  } catch (err) {
    console.log(`FAIL connect: ${err.message}`);
    process.exit(1);
  }
  let failed = false;
  for (const [name, scenario] of SCENARIOS) {
    if (names.length > 0 && !names.includes(name)) continue;
    if (name === 'redlock-singles' && addresses('COORDD_SINGLES').length === 0) {
      console.log(`SKIPPED ${name}: COORDD_SINGLES is not set`);
      continue;
    }
    try {
      await runOne(library, name, scenario);
      console.log(`ok ${name}`);
    } catch (err) {
      console.log(`FAIL ${name}: ${String(err.message).replaceAll('\n', '; ').slice(0, 400)}`);
      failed = true;
    }
  }
  process.exit(failed ? 1 : 0);
}

main();
