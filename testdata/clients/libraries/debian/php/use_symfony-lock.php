<?php
// php-symfony-lock: exclusive and shared locks in a RedisStore, by phpredis.

require __DIR__.'/checks.php';
require 'Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\RedisStore;

const LIBRARY = 'php-symfony-lock';

function locks(int $i): LockFactory
{
    $redis = new Redis();
    [$host, $port] = node($i);
    $redis->connect($host, $port, 5);

    return new LockFactory(new RedisStore($redis));
}

check(LIBRARY, 'six processes on three nodes raise a counter under a lock: it ends exact', function () {
    $name = unique('lock');
    $n = counted(function (string $file) use ($name) {
        together(6, function (int $i) use ($name, $file) {
            $lock = locks($i)->createLock($name, 5);
            for ($done = 0; $done < 4; ++$done) {
                $lock->acquire(true);
                raise($file);
                $lock->release();
            }
        });
    });
    want($n, 24, 'the counter');
});

check(LIBRARY, 'readers share a lock that a writer is refused, and the other way round', function () {
    $name = unique('lock');
    $readers = [locks(0)->createLock($name, 5), locks(1)->createLock($name, 5)];
    $writer = locks(2)->createLock($name, 5);
    want([$readers[0]->acquireRead(), $readers[1]->acquireRead()], [true, true], 'the readers');
    want($writer->acquire(), false, 'the writer beside readers');
    $readers[0]->release();
    want($writer->acquire(), false, 'the writer beside one reader');
    $readers[1]->release();
    want($writer->acquire(), true, 'the writer alone');
    want($readers[0]->acquireRead(), false, 'a reader beside the writer');
    $writer->release();
});

check(LIBRARY, 'a lease that is over is lost, one that is refreshed is not', function () {
    $name = unique('lock');
    $first = locks(0)->createLock($name, 0.3, false);
    $second = locks(1)->createLock($name, 5);
    want($first->acquire(), true, 'the first');
    $first->refresh(1);
    usleep(500000);
    want($second->acquire(), false, 'the second while the lease lasts');
    usleep(700000);
    want($second->acquire(), true, 'the second after it');
    try {
        $first->refresh(1);
    } catch (LockConflictedException $err) {
        return;
    }
    throw new Exception('a lock that is over was refreshed');
});
