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

check(LIBRARY, 'LOCK.ACQUIRE with WAIT: six callers on three nodes hold it one at a time, tokens rise', function () {
    $key = unique('lock');
    $tokens = tempnam(sys_get_temp_dir(), 'coordd');
    $n = counted(function (string $file) use ($key, $tokens) {
        together(6, function (int $i) use ($key, $file, $tokens) {
            $redis = connect($i);
            $redis->setOption(Redis::OPT_READ_TIMEOUT, 35); // longer than WAIT
            for ($done = 0; $done < 4; ++$done) {
                $owner = unique('owner');
                [$token] = $redis->rawCommand('LOCK.ACQUIRE', $key, $owner, 'PX', 10000, 'WAIT', 30000, 'ID', $owner);
                file_put_contents($tokens, "$token\n", FILE_APPEND);
                raise($file);
                want($redis->rawCommand('LOCK.RELEASE', $key, $owner, 'TOKEN', $token), 1, 'the release');
            }
        });
    });
    $all = array_map('intval', file($tokens));
    unlink($tokens);
    want($n, 24, 'the counter');
    $sorted = array_unique($all);
    sort($sorted);
    want($all, $sorted, 'the tokens');
});

check(LIBRARY, 'LEASE: a lock and a key live while it is renewed; its end serves who waits', function () {
    [$lock, $key] = [unique('lock'), unique('key')];
    $tokens = together(2, function (int $i) use ($lock, $key) {
        $redis = connect($i);
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 25); // longer than WAIT
        if ($i === 1) {
            while (!$redis->exists($lock)) {
                usleep(10000);
            }

            return $redis->rawCommand('LOCK.ACQUIRE', $lock, 'b', 'PX', 10000, 'WAIT', 20000)[0];
        }
        $lease = $redis->rawCommand('LEASE', 'GRANT', 1000, 'CONNECTION');
        $redis->rawCommand('SET', $key, 'v', 'LEASE', $lease);
        [$token] = $redis->rawCommand('LOCK.ACQUIRE', $lock, 'a', 'LEASE', $lease);
        for ($n = 0; $n < 15; ++$n) { // longer than the lease
            usleep(100000);
            want($redis->rawCommand('LEASE', 'KEEPALIVE', $lease), [1000], 'what is left');
        }
        want([$redis->get($lock), $redis->exists($key)], ['a', 1], 'what lives');
        want($redis->rawCommand('LEASE', 'REVOKE', $lease), 1, 'the end');

        return $token;
    });
    want($tokens[0] > 0 && $tokens[1] > $tokens[0], true, 'the tokens rise');
    want(connect(0)->exists($key), 0, 'what lives after the end');
});

check(LIBRARY, 'ID: what is sent again through another node has the first reply', function () {
    [$lock, $counter, $id] = [unique('lock'), unique('counter'), unique('id')];
    $replies = [];
    for ($i = 0; $i < 3; ++$i) {
        $redis = connect($i);
        $replies[] = json_encode([
            $redis->rawCommand('LOCK.ACQUIRE', $lock, 'me', 'PX', 10000, 'WAIT', 1000, 'ID', "$id:l"),
            $redis->rawCommand('INCREX', $counter, 'EX', 60, 'ID', "$id:c"),
        ]);
    }
    want(count(array_unique($replies)), 1, 'different replies');
    want(connect(0)->get($counter), '1', 'the counter');
});

check(LIBRARY, 'WINDOW.HIT: of 40 calls at once on three nodes exactly 10 are allowed', function () {
    $key = unique('window');
    $allowed = together(40, fn (int $i) => connect($i)->rawCommand('WINDOW.HIT', $key, 10, 'PX', 60000)[0]);
    want(array_sum($allowed), 10, 'allowed');
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
