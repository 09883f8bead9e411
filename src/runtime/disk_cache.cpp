#include "runtime/disk_cache.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/flags.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"

namespace whit {
namespace {

constexpr int kBusyMs = 2000;

// Rows are found by the digest of their key. The digest of an entry covers table and key too: a value that moved to
// another row, or whose key collides with another, is as wrong as a changed one.
std::string digest_of(std::string_view table, std::string_view key, std::string_view value) {
  return hash128(fmt::format("{}:{}{}:{}{}", table.size(), table, key.size(), key, value)).hex();
}

// The place of an entry, as the first two parameters of a statement; both must outlive its step.
sqlite3_stmt* bind_row(sqlite3_stmt* s, std::string_view table, const std::string& row) {
  sqlite3_bind_text(s, 1, table.data(), static_cast<int>(table.size()), SQLITE_STATIC);
  sqlite3_bind_text(s, 2, row.data(), static_cast<int>(row.size()), SQLITE_STATIC);
  return s;
}

// Makes the folders above `path`. What fails shows when the file is opened.
void make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) mkdir(path.substr(0, at).c_str(), 0700);
}

std::string default_path() {
  if (!flag::CACHEDB().empty()) return flag::CACHEDB();
  const std::string folder = os::cache_dir();
  return folder.empty() ? "" : fmt::format("{}/whit/cache.db", folder);
}

}  // namespace

struct DiskCache::Impl {
  std::mutex mutex;
  sqlite3* db = nullptr;
  sqlite3_stmt* select = nullptr;
  sqlite3_stmt* insert = nullptr;
  pid_t pid = 0;
  bool broken = false;
  bool read_only = false;

  void close() {
    // In the child of a fork the handle is the parent's: closing it would drop the parent's file locks.
    if (pid == getpid()) {
      sqlite3_finalize(select);
      sqlite3_finalize(insert);
      sqlite3_close_v2(db);
    }
    db = nullptr;
    select = insert = nullptr;
  }

  void give_up(const std::string& path, std::string_view why) {
    say_once("cache:" + path, fmt::format("the cache {} is not used: {}", path, why));
    close();
    broken = true;
  }

  // What SQLite says about a failed call.
  std::string sql_error() const { return db ? sqlite3_errmsg(db) : "out of memory"; }

  // A reason not to trust the file, or "".
  static std::string distrust(int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0) return std::strerror(errno);
    if (!S_ISREG(info.st_mode)) return "it is no regular file";
    if (info.st_uid != geteuid()) return fmt::format("it belongs to user {}, not to user {}", info.st_uid, geteuid());
    if (info.st_mode & (S_IWGRP | S_IWOTH)) return fmt::format("others may write it (mode {:o})", info.st_mode & 0777);
    return "";
  }

  bool ready(const std::string& path) {
    if (db && pid != getpid()) close();
    if (db) return true;
    if (broken || flag::CACHELEVEL() < 1) return false;
    if (path.empty()) return give_up("on disk", "neither XDG_CACHE_HOME nor HOME is set"), false;
    pid = getpid();
    make_folders(path);
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && (errno == EACCES || errno == EROFS)) {
      fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
      read_only = fd >= 0;
      errno = read_only ? 0 : EACCES;
    }
    if (fd < 0) return give_up(path, std::strerror(errno)), false;
    const std::string reason = distrust(fd);
    ::close(fd);
    if (!reason.empty()) return give_up(path, reason), false;
    // A read-only file may lie on a read-only disk, where the files of the write-ahead log cannot be made.
    const std::string uri = read_only ? "file:" + path + "?immutable=1" : path;
    const int mode = read_only ? SQLITE_OPEN_READONLY | SQLITE_OPEN_URI : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (sqlite3_open_v2(uri.c_str(), &db, mode | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK) return give_up(path, sql_error()), false;
    sqlite3_busy_timeout(db, kBusyMs);
    if (!prepare_schema()) return give_up(path, sql_error()), false;
    if (read_only) say_once("cache:" + path, fmt::format("the cache {} is read-only: new kernels are not kept", path));
    return true;
  }

  int64_t number(const char* sql) {
    sqlite3_stmt* stmt = nullptr;
    int64_t value = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, nullptr) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return value;
  }

  bool prepare_schema() {
    const auto run = [this](const char* sql) { return sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK; };
    if (!read_only) {
      if (!run("PRAGMA journal_mode=WAL") || !run("PRAGMA synchronous=NORMAL")) return false;
      // The name of the table holds the version of its layout. When there is too much, the older half goes, in the order of
      // writing; pages are used again, so the file stops growing, and what is still needed is compiled again.
      const int64_t n_pages = number("PRAGMA page_count") - number("PRAGMA freelist_count");
      if (n_pages * number("PRAGMA page_size") > flag::CACHE_LIMIT_MB() * 1'000'000) {
        run("DROP TABLE IF EXISTS entries_v1");
        run("DELETE FROM entries_v2 WHERE rowid <= (SELECT (min(rowid) + max(rowid)) / 2 FROM entries_v2)");
      }
      if (!run("CREATE TABLE IF NOT EXISTS entries_v2(kind TEXT, key BLOB, value BLOB, digest BLOB, PRIMARY KEY(kind, key))")) return false;
    }
    const auto prepare = [this](const char* sql, sqlite3_stmt*& stmt) {
      return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, nullptr) == SQLITE_OK;
    };
    return prepare("SELECT value, digest FROM entries_v2 WHERE kind=?1 AND key=?2", select) &&
           (read_only || prepare("INSERT OR REPLACE INTO entries_v2 VALUES(?1, ?2, ?3, ?4)", insert));
  }
};

// The caches of the process, used until it ends.
struct DiskCache::Open {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<DiskCache>> caches;

  static Open& get() {
    static Open* const all = [] {
      // A fork waits until no thread is inside a cache: the child would never see such a lock, or one of SQLite's own,
      // become free.
      pthread_atfork([] { get().lock_all(); }, [] { get().unlock_all(); }, [] { get().unlock_all(); });
      return new Open();
    }();
    return *all;
  }
  void lock_all() {
    mutex.lock();
    for (const auto& [path, cache] : caches) cache->impl_->mutex.lock();
  }
  void unlock_all() {
    for (const auto& [path, cache] : caches) cache->impl_->mutex.unlock();
    mutex.unlock();
  }
};

DiskCache& DiskCache::get() {
  Open& all = Open::get();
  const std::lock_guard lock(all.mutex);
  std::unique_ptr<DiskCache>& cache = all.caches[default_path()];
  if (!cache) cache = std::make_unique<DiskCache>(default_path());
  return *cache;
}

DiskCache::DiskCache(std::string path) : path_(std::move(path)), impl_(std::make_unique<Impl>()) {}
DiskCache::~DiskCache() { impl_->close(); }

bool DiskCache::usable() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ready(path_);
}

std::optional<std::string> DiskCache::find(std::string_view table, std::string_view key) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->ready(path_)) return std::nullopt;
  const std::string row = digest_of(table, key, "");
  sqlite3_stmt* const s = bind_row(impl_->select, table, row);
  const int rc = sqlite3_step(s);
  std::optional<std::string> found;
  if (rc == SQLITE_ROW) {
    const auto* const data = static_cast<const char*>(sqlite3_column_blob(s, 0));
    const auto n = static_cast<size_t>(sqlite3_column_bytes(s, 0));
    const auto* const digest = static_cast<const char*>(sqlite3_column_blob(s, 1));
    found.emplace(data ? data : "", data ? n : 0);
    const std::string_view known(digest ? digest : "", static_cast<size_t>(sqlite3_column_bytes(s, 1)));
    if (known != digest_of(table, key, *found)) {
      found.reset();
      say_once("cache-entry:" + path_, fmt::format("the cache {} holds a damaged entry, which is made again", path_));
    }
  }
  sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  if (rc != SQLITE_ROW && rc != SQLITE_DONE && rc != SQLITE_BUSY) impl_->give_up(path_, impl_->sql_error());
  return found;
}

void DiskCache::put(std::string_view table, std::string_view key, std::string_view value) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->ready(path_) || impl_->read_only) return;
  const std::string row = digest_of(table, key, ""), digest = digest_of(table, key, value);
  sqlite3_stmt* const s = bind_row(impl_->insert, table, row);
  sqlite3_bind_blob64(s, 3, value.data(), value.size(), SQLITE_STATIC);
  sqlite3_bind_text(s, 4, digest.data(), static_cast<int>(digest.size()), SQLITE_STATIC);
  const int rc = sqlite3_step(s);
  const std::string error = rc == SQLITE_DONE ? "" : impl_->sql_error();
  sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  // Reading may still work when the disk is full, but one failed write announces the next.
  if (rc != SQLITE_DONE && rc != SQLITE_BUSY && rc != SQLITE_TOOBIG) impl_->give_up(path_, error);
}

}  // namespace whit
