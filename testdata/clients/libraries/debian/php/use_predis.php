<?php
// php-predis: scripts by name, transactions with check-and-set, subscriptions.

require __DIR__.'/checks.php';
require 'Predis/Autoloader.php';
Predis\Autoloader::register();

const LIBRARY = 'php-predis';

function connect(int $i): Predis\Client
{
    [$host, $port] = node($i);

    return new Predis\Client(['host' => $host, 'port' => $port, 'read_write_timeout' => 30]);
}

class Release extends Predis\Command\ScriptCommand
{
    public function getKeysCount()
    {
        return 1;
    }

    public function getScript()
    {
        return "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    }
}

check(LIBRARY, 'six processes on three nodes raise a counter under a lock: it ends exact', function () {
    $key = unique('lock');
    $n = counted(function (string $file) use ($key) {
        together(6, function (int $i) use ($key, $file) {
            $redis = connect($i);
            $redis->getProfile()->defineCommand('release', Release::class);
            for ($done = 0; $done < 4;) {
                $owner = unique('owner');
                if ($redis->set($key, $owner, 'PX', 5000, 'NX') === null) {
                    usleep(random_int(2000, 8000));
                    continue;
                }
                raise($file);
                want($redis->release($key, $owner), 1, 'the release');
                ++$done;
            }
        });
    });
    want($n, 24, 'the counter');
});

check(LIBRARY, 'a transaction with check-and-set on three nodes: the counter ends exact', function () {
    $key = unique('counter');
    together(4, function (int $i) use ($key) {
        $redis = connect($i);
        for ($done = 0; $done < 6; ++$done) {
            $redis->transaction(['cas' => true, 'watch' => $key, 'retry' => 1000], function ($tx) use ($key) {
                $n = (int) $tx->get($key);
                $tx->multi();
                $tx->set($key, (string) ($n + 1));
            });
        }
    });
    want(connect(1)->get($key), '24', 'the counter');
});

check(LIBRARY, 'a subscription gets what another node publishes', function () {
    $channel = unique('channel');
    $loop = connect(0)->pubSubLoop();
    $loop->subscribe($channel);
    foreach ($loop as $message) {
        if ($message->kind === 'subscribe') {
            connect(2)->publish($channel, 'hello');
            continue;
        }
        want($message->payload, 'hello', 'the message');
        $loop->stop(true);
        break;
    }
});
