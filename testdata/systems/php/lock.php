<?php
// Repeats one round of checks: php lock.php, several at a time. Prints `ok`, `failed WHY` (no
// service) or `wrong WHAT` (a broken promise) for each.
require_once 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

const TTL = 5.0;
[$host, $port] = explode(':', getenv('COORDD_ADDR'));
// A file that exists while a holder works, named after the cluster.
$inside = sys_get_temp_dir().'/coordd-systems-lock-'.md5(getenv('COORDD_ADDRS'));

/** Takes the lock, works alone, and releases it. Returns what went wrong. */
function work(string $host, int $port, string $inside): ?string
{
    $redis = new Redis();
    $redis->connect($host, $port, 5);
    $lock = (new LockFactory(new RedisStore($redis, TTL)))->createLock('systems', TTL);
    for ($i = 0; !$lock->acquire(); ++$i) {
        if ($i === 1000) {
            throw new Exception('the lock was not free for ten seconds');
        }
        usleep(10000);
    }
    $file = @fopen($inside, 'x');
    if ($file === false) {
        return 'two hold the lock';
    }
    usleep(5000);
    fclose($file);
    unlink($inside);
    $lock->release();

    return null;
}

while (true) {
    try {
        $wrong = work($host, (int) $port, $inside);
        echo $wrong === null ? "ok\n" : "wrong $wrong\n";
    } catch (Throwable $err) {
        echo 'failed ', strtr(($err->getPrevious() ?? $err)->getMessage(), "\n", ' '), "\n";
    }
    usleep(20000);
}
