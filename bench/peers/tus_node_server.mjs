// @tus/server with one of its stores: `node tus_node_server.mjs PORT file-store FOLDER`, or
// `node tus_node_server.mjs PORT s3-store BUCKET ENDPOINT` with the key in AWS_ variables.
import { Server } from "@tus/server";

const stores = {
  "file-store": async (directory) => {
    const { FileStore } = await import("@tus/file-store");
    return new FileStore({ directory });
  },
  "s3-store": async (bucket, endpoint) => {
    const { S3Store } = await import("@tus/s3-store");
    // A part for each chunk: with 8 MiB, the default, it would store the rest of each chunk
    // apart, and read it again for the next.
    const partSize = 20 * 1024 * 1024;
    return new S3Store({ partSize, s3ClientConfig: { bucket, endpoint, forcePathStyle: true } });
  },
};

const [port, store, ...place] = process.argv.slice(2);
const server = new Server({ path: "/files", datastore: await stores[store](...place) });
server.listen({ host: "127.0.0.1", port: Number(port) });
