// Where RocksDB's background jobs run.
#pragma once

namespace rocksdb {
class Env;
}

namespace cudaforge {

// RocksDB's default environment, but for the threads of its background jobs. Those of the default
// one are waited for when a process exits: in a forked child they are not there, and it hangs.
// These are never waited for; closing a database waits for its jobs. A forked child has one of its
// own. Never destroyed. Thread-safe.
rocksdb::Env* RocksEnv();

}  // namespace cudaforge
