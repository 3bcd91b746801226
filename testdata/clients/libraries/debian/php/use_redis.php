<?php
// php-redis (phpredis): locks by SET NX PX and a script, transactions, and a session that two nodes share.

require __DIR__.'/checks.php';

const LIBRARY = 'php-redis';
const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

function connect(int $i): Redis
{
    $redis = new Redis();
    [$host, $port] = node($i);
    $redis->connect($host, $port, 5);

    return $redis;
}

check(LIBRARY, 'six processes on three nodes raise a counter under a lock: it ends exact', function () {
    $key = unique('lock');
    $n = counted(function (string $file) use ($key) {
        together(6, function (int $i) use ($key, $file) {
            $redis = connect($i);
            for ($done = 0; $done < 4;) {
                $owner = unique('owner');
                if (!$redis->set($key, $owner, ['nx', 'px' => 5000])) {
                    usleep(random_int(2000, 8000));
                    continue;
                }
                raise($file);
                want($redis->eval(RELEASE, [$key, $owner], 1), 1, 'the release');
                ++$done;
            }
        });
    });
    want($n, 24, 'the counter');
});

check(LIBRARY, 'a counter raised under WATCH on three nodes ends exact', function () {
    $key = unique('counter');
    together(5, function (int $i) use ($key) {
        $redis = connect($i);
        for ($done = 0; $done < 8;) {
            $redis->watch($key);
            $n = (int) $redis->get($key);
            if ($redis->multi()->set($key, (string) ($n + 1))->exec() !== false) {
                ++$done;
            }
        }
    });
    want(connect(0)->get($key), '40', 'the counter');
});

check(LIBRARY, 'BRPOP takes each element once; a pipeline comes back in order', function () {
    $key = unique('queue');
    $taken = together(4, function (int $i) use ($key) {
        $redis = connect($i);
        if ($i === 3) {
            $pipe = $redis->pipeline();
            for ($n = 0; $n < 33; ++$n) {
                $pipe->lPush($key, $n < 30 ? (string) $n : 'end');
            }
            want(count($pipe->exec()), 33, 'replies');

            return [];
        }
        for ($taken = []; ($item = $redis->brPop([$key], 20)[1]) !== 'end'; $taken[] = (int) $item);

        return $taken;
    });
    $all = array_merge(...$taken);
    sort($all);
    want($all, range(0, 29), 'the elements taken');
});

check(LIBRARY, 'its session handler: what one node wrote another reads, under the session lock', function () {
    ini_set('session.save_handler', 'redis');
    ini_set('redis.session.locking_enabled', '1');
    ini_set('session.use_cookies', '0');
    ini_set('session.cache_limiter', '');
    $id = bin2hex(random_bytes(8));
    $counts = [];
    for ($i = 0; $i < 3; ++$i) {
        [$host, $port] = node($i);
        session_save_path("tcp://$host:$port");
        session_id($id);
        want(session_start(), true, 'session_start');
        $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        $counts[] = $_SESSION['n'];
        session_write_close();
        $_SESSION = [];
    }
    want($counts, [1, 2, 3], 'the counts');
});
