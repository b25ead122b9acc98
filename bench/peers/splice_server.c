/* The least a server can do for an upload: the kernel moves the body from the socket to the file.
 *
 *     splice_server PORT FOLDER [sync]
 *
 * "PUT /NAME?offset=N&total=M" writes the body at N of a file that is preallocated to M bytes, and is answered
 * with 204; with "sync", once the bytes are on the disk. It trusts its only client, the benchmark: no checks of
 * what is asked, no records, a thread a connection. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_BYTES = 4096, PIPE_BYTES = 1 << 20 };

static const char *folder;
static int is_synced;

static void require(int is_well, const char *what) {
    if (!is_well) {
        perror(what);
        exit(1);
    }
}

/* The request's head with its empty line; 0 at the end of the connection. Peeking first leaves the body in the
 * socket, where splice finds it. */
static ssize_t read_head(int client, char *head) {
    for (;;) {
        ssize_t seen = recv(client, head, HEAD_BYTES - 1, MSG_PEEK);
        if (seen <= 0)
            return 0;
        head[seen] = 0;
        char *end = strstr(head, "\r\n\r\n");
        if (end) {
            end[4] = 0;
            return recv(client, head, end + 4 - head, MSG_WAITALL);
        }
    }
}

static int open_target(const char *name, long long offset, long long total) {
    char path[HEAD_BYTES];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    require(file >= 0, path);
    require(offset > 0 || fallocate(file, 0, 0, total) == 0, "fallocate");
    return file;
}

/* Move `left` bytes; false if the client went away. */
static int take_body(int client, int file, int pipes[2], loff_t offset, long long left) {
    while (left > 0) {
        size_t wanted = left < PIPE_BYTES ? left : PIPE_BYTES;
        ssize_t inside = splice(client, NULL, pipes[1], NULL, wanted, SPLICE_F_MOVE);
        if (inside <= 0)
            return 0;
        left -= inside;
        while (inside > 0) {
            ssize_t count = splice(pipes[0], NULL, file, &offset, inside, SPLICE_F_MOVE);
            require(count > 0, "splice to the file");
            inside -= count;
        }
    }
    return 1;
}

static int answer_one(int client, int pipes[2]) {
    static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
    char head[HEAD_BYTES], name[64];
    long long offset, total;
    if (!read_head(client, head))
        return 0;
    const char *length = strcasestr(head, "\r\nContent-Length:");
    if (!length || sscanf(head, "PUT /%63[a-z0-9]?offset=%lld&total=%lld ", name, &offset, &total) != 3)
        return 0;
    int file = open_target(name, offset, total);
    int is_whole = take_body(client, file, pipes, offset, atoll(length + 17));
    if (is_whole && is_synced)
        require(fdatasync(file) == 0, "fdatasync");
    close(file);
    return is_whole && send(client, answer, sizeof answer - 1, 0) > 0;
}

static void *serve(void *argument) {
    int client = (int)(long)argument, on = 1, pipes[2];
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    require(pipe(pipes) == 0 && fcntl(pipes[0], F_SETPIPE_SZ, PIPE_BYTES) >= 0, "pipe");
    while (answer_one(client, pipes)) {}
    close(pipes[0]);
    close(pipes[1]);
    close(client);
    return NULL;
}

int main(int count, char **arguments) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    folder = arguments[2];
    is_synced = count > 3;
    signal(SIGPIPE, SIG_IGN);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    require(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    require(listen(listener, 128) == 0, "listen");
    for (;;) {
        pthread_t thread;
        int client = accept(listener, NULL, NULL);
        require(client >= 0, "accept");
        require(pthread_create(&thread, NULL, serve, (void *)(long)client) == 0, "pthread_create");
        pthread_detach(thread);
    }
}
