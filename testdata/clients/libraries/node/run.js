'use strict';
// Runs the checks of every library, each in a process of its own: what a library leaves open ends with it.

const { spawnSync } = require('node:child_process');
const { readdirSync, existsSync } = require('node:fs');
const path = require('node:path');

const LIMIT_MS = 120_000;

const names = readdirSync(path.join(__dirname, 'checks')).map((file) => path.basename(file, '.js')).sort();
const wanted = process.argv.slice(2);
let failed = false;
for (const name of names) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  if (!existsSync(path.join(__dirname, 'node_modules'))) {
    console.log(JSON.stringify({ library: name, version: '', skipped: 'the npm packages are not installed' }));
    continue;
  }
  const run = spawnSync(process.execPath, [path.join(__dirname, 'checks', `${name}.js`)], { stdio: ['ignore', 'inherit', 'inherit'], timeout: LIMIT_MS });
  if (run.status !== 0) {
    failed = true;
    console.log(JSON.stringify({ library: name, version: '', check: 'the program ends', ok: false, error: run.error?.message ?? `exit status ${run.status}` }));
  }
}
process.exitCode = failed ? 1 : 0;
