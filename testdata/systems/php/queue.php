<?php
// A producer or a worker of one queue: php queue.php laravel|symfony produce|work NAME JOBS. Prints
// `put N` for a job that the library took and `ran N` for one that a worker began.
[, $library, $role, $name, $jobs] = $argv;
[$host, $port] = explode(':', getenv('COORDD_ADDR'));

function say(string $word, $n): void
{
    fwrite(STDOUT, "$word $n\n");
}

function work($n): void
{
    say('ran', $n);
    usleep(20000);
}

function complain(string $library, Throwable $err): void
{
    fwrite(STDERR, "$library: {$err->getMessage()}\n");
}

/** A handler of Laravel's queue. */
class Count
{
    public function fire($job, array $data): void
    {
        work($data['n']);
        $job->delete();
    }
}

/** Opens Laravel's queue. */
function laravelQueue(string $host, string $port): Illuminate\Queue\Capsule\Manager
{
    require_once 'Illuminate/Queue/autoload.php';
    require_once 'Illuminate/Redis/autoload.php';
    $capsule = new Illuminate\Queue\Capsule\Manager();
    $app = $capsule->getContainer();
    $server = ['host' => $host, 'port' => (int) $port, 'timeout' => 5];
    $app->instance('redis', new Illuminate\Redis\RedisManager($app, 'phpredis', ['default' => $server]));
    $capsule->addConnection(['driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => 5]);

    return $capsule;
}

$libraries = [
    'laravel' => function () use ($host, $port, $name): array {
        $capsule = laravelQueue($host, $port);

        return [
            fn (int $n) => $capsule->getConnection('default')->push('Count', ['n' => $n], $name),
            function () use ($capsule, $name): void {
                $job = $capsule->getConnection('default')->pop($name);
                $job === null ? usleep(20000) : $job->fire();
            },
        ];
    },
    'symfony' => function () use ($host, $port, $name): array {
        require_once 'Symfony/Component/Messenger/autoload.php';
        require_once 'Symfony/Component/Messenger/Bridge/Redis/autoload.php';
        $transport = Symfony\Component\Messenger\Bridge\Redis\Transport\Connection::fromDsn("redis://$host:$port/$name", [
            'consumer' => 'worker-'.getmypid(), 'redeliver_timeout' => 5, 'claim_interval' => 1000,
            'delete_after_ack' => true,
        ]);

        return [
            fn (int $n) => $transport->add((string) $n, []),
            function () use ($transport): void {
                $message = $transport->get();
                if ($message === null) {
                    usleep(20000);

                    return;
                }
                work(json_decode($message['data']['message'], true)['body']);
                $transport->ack($message['id']);
            },
        ];
    },
];

// Both open a connection anew after an error, as a supervisor's restart would.
$open = $libraries[$library];
for ($n = 0, $calls = null; $role === 'work' || $n < (int) $jobs;) {
    try {
        [$add, $take] = $calls ??= $open();
        if ($role === 'work') {
            $take();
            continue;
        }
        $add($n);
        say('put', $n++);
        usleep(10000);
    } catch (Throwable $err) {
        complain($library, $err);
        $calls = null;
        usleep(100000);
    }
}
