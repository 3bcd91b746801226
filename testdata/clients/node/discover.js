'use strict';
// Writes through a client that finds the leader by itself, while a test kills
// leaders; see ../README.md under "Finding the leader".
//   node discover.js KIND PREFIX

const { setTimeout: sleep } = require('node:timers/promises');
const { KINDS, nodes } = require('./finders');

const WRITERS = 4;
const ERROR_PAUSE_MS = 20;

async function main() {
  const [kind, prefix] = process.argv.slice(2);
  if (!KINDS[kind] || !prefix || nodes.length === 0) {
    console.error(`usage: COORDD_ADDRS=host:port,... node discover.js ${Object.keys(KINDS).join('|')} PREFIX`);
    process.exit(2);
  }
  const client = await KINDS[kind]();
  let stopped = false;
  const writer = async (i) => {
    for (let n = 0; !stopped; n++) {
      const key = `${prefix}:${i}:${n}`;
      try {
        await client.set(key, String(n));
        console.log(`ack ${key}`);
      } catch (err) {
        console.log(`err ${String(err.message).replaceAll('\n', ' ')}`);
        await sleep(ERROR_PAUSE_MS);
      }
    }
  };
  const writers = Array.from({ length: WRITERS }, (_, i) => writer(i));
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on('end', resolve));
  stopped = true;
  await Promise.all(writers);
  if (client.role) console.log(`role ${await client.role()}`);
  console.log('end');
  client.close();
  process.exit(0);
}

main();
