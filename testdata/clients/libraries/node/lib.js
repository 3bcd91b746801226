'use strict';
// What the checks stand on: the cluster's addresses, names that nobody else has, and the reporting of checks.

const crypto = require('node:crypto');
const { readFileSync } = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const addresses = (process.env.COORDD_ADDRS ?? '').split(',').filter(Boolean);
function hostPort(address) {
  const at = address.lastIndexOf(':');
  return { host: address.slice(0, at), port: Number(address.slice(at + 1)) };
}
const nodes = addresses.map(hostPort);
// A follower that presents itself as standalone.
const standalone = hostPort(process.env.COORDD_STANDALONE ?? '');

// How long one check may take.
const CHECK_LIMIT_MS = 40_000;

// Returns the node that the i-th caller talks to.
function node(i) {
  return nodes[i % nodes.length];
}

// Returns a name that no other run uses.
function unique(name) {
  return `${name}:${crypto.randomBytes(6).toString('hex')}`;
}

function version(library) {
  return JSON.parse(readFileSync(path.join(__dirname, 'node_modules', library, 'package.json'), 'utf8')).version;
}

// Runs the checks of a library one after the other and reports each. Then it ends the process, whatever the library left open.
async function checks(library, list) {
  for (const [check, run] of Object.entries(list)) {
    const line = { library, version: version(library), check, ok: true };
    try {
      await Promise.race([run(), sleep(CHECK_LIMIT_MS, null, { ref: false }).then(() => { throw new Error(`not done after ${CHECK_LIMIT_MS} ms`); })]);
    } catch (err) {
      Object.assign(line, { ok: false, error: String(err?.message ?? err) });
    }
    process.stdout.write(`${JSON.stringify(line)}\n`);
  }
  process.exit(0);
}

// Throws unless the condition holds.
function check(condition, what) {
  if (!condition) throw new Error(what);
}

// Throws unless what was got is what is wanted.
function want(got, wanted, what) {
  if (JSON.stringify(got) !== JSON.stringify(wanted)) throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(wanted)}`);
}

// Runs n callers at once and returns their results; rejects when one does.
function together(n, caller) {
  return Promise.all(Array.from({ length: n }, (_, i) => caller(i)));
}

// Waits until a condition holds.
async function until(condition, what, limitMs = 20_000) {
  for (const end = Date.now() + limitMs; !(await condition()); await sleep(10)) {
    if (Date.now() > end) throw new Error(`waited ${limitMs} ms in vain: ${what}`);
  }
}

// Counts how many callers are inside at a time.
class Room {
  constructor() {
    Object.assign(this, { inside: 0, most: 0, visits: 0 });
  }

  async visit(ms = 5) {
    this.inside += 1;
    this.visits += 1;
    this.most = Math.max(this.most, this.inside);
    await sleep(ms);
    this.inside -= 1;
  }
}

module.exports = { addresses, node, nodes, standalone, unique, checks, check, want, together, until, sleep, Room };
