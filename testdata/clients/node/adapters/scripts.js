'use strict';
// The Lua scripts that all languages share, by their base name.

const fs = require('node:fs');
const path = require('node:path');

const DIR = path.join(__dirname, '..', '..', 'lua');

const scripts = {};
for (const file of fs.readdirSync(DIR)) {
  if (file.endsWith('.lua')) scripts[path.basename(file, '.lua')] = fs.readFileSync(path.join(DIR, file), 'utf8');
}

module.exports = scripts;
