<?php
// What the checks stand on: the cluster's addresses, names that nobody else has, callers at once, and the reporting.

$addresses = explode(',', getenv('COORDD_ADDRS'));

/** The host and port that the i-th caller talks to. */
function node(int $i): array
{
    global $addresses;
    $at = strrpos($addresses[$i % count($addresses)], ':');
    $address = $addresses[$i % count($addresses)];

    return [substr($address, 0, $at), (int) substr($address, $at + 1)];
}

/** A name that no other run uses. */
function unique(string $name): string
{
    return $name.':'.bin2hex(random_bytes(6));
}

/** Runs a check and reports it. */
function check(string $library, string $text, callable $run): void
{
    $line = ['library' => $library, 'version' => (string) getenv('VERSION'), 'check' => $text, 'ok' => true];
    try {
        $run();
    } catch (Throwable $err) {
        $line['ok'] = false;
        $line['error'] = get_class($err).': '.$err->getMessage();
    }
    fwrite(STDOUT, json_encode($line)."\n"); // echo would make PHP think of headers, and start no session after them
}

/** Throws unless what was got is what is wanted. */
function want($got, $wanted, string $what): void
{
    if ($got !== $wanted) {
        throw new Exception($what.': got '.json_encode($got).', want '.json_encode($wanted));
    }
}

/** Runs n callers at once, each in a process of its own, and returns what they returned; throws when one does. */
function together(int $n, callable $caller): array
{
    $pipes = [];
    for ($i = 0; $i < $n; ++$i) {
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $pid = pcntl_fork();
        if ($pid === 0) {
            try {
                $result = ['value' => $caller($i)];
            } catch (Throwable $err) {
                $result = ['error' => get_class($err).': '.$err->getMessage()];
            }
            fwrite($theirs, json_encode($result));
            fclose($theirs);
            posix_kill(getmypid(), SIGKILL); // nothing of the parent's is to be shut down twice
        }
        fclose($theirs);
        $pipes[$pid] = $ours;
    }
    $values = [];
    foreach ($pipes as $pid => $pipe) {
        $result = json_decode(stream_get_contents($pipe), true);
        pcntl_waitpid($pid, $status);
        if (!is_array($result) || isset($result['error'])) {
            throw new Exception($result['error'] ?? 'a caller died');
        }
        $values[] = $result['value'];
    }

    return $values;
}

/**
 * Raises a counter in a file, not atomically, as a caller that holds a lock may. Processes that are inside at a time lose
 * each other's work.
 */
function raise(string $file): void
{
    $n = (int) file_get_contents($file);
    usleep(2000);
    file_put_contents($file, $n + 1);
}

/** Calls f with the name of a file that holds 0, and returns the number that is in it then. */
function counted(callable $f): int
{
    $file = tempnam(sys_get_temp_dir(), 'coordd');
    file_put_contents($file, '0');
    try {
        $f($file);

        return (int) file_get_contents($file);
    } finally {
        unlink($file);
    }
}
