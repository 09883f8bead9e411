#include "runtime/disk_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/flags.h"
#include "base/log.h"
#include "unit/temp_folder.h"

namespace whit {
namespace {

// Runs SQL on the file behind the cache's back.
void run_sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

bool was_said(const std::string& text) { return said_so_far().find(text) != std::string::npos; }

TEST(DiskCache, KeepsWhatItWasGiven) {
  const TempFolder folder;
  const std::string path = folder.path("a/b/cache.db");
  const std::string binary("\0\1\2binary\0", 10);
  {
    DiskCache cache(path);
    EXPECT_FALSE(cache.find("kernel", "k"));
    cache.put("kernel", "k", binary);
    cache.put("kernel", "empty", "");
    EXPECT_EQ(cache.find("kernel", "k"), binary);
  }
  DiskCache cache(path);
  EXPECT_EQ(cache.find("kernel", "k"), binary);
  EXPECT_EQ(cache.find("kernel", "empty"), "");
  EXPECT_FALSE(cache.find("beam", "k"));
  cache.put("kernel", "k", "new");
  EXPECT_EQ(cache.find("kernel", "k"), "new");
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(DiskCache, ForgetsTheOlderHalfWhenItIsTooLarge) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  {
    DiskCache cache(path);
    for (int i = 0; i < 30; ++i) cache.put("kernel", std::to_string(i), std::string(50'000, 'v'));
  }
  {
    const FlagScope scope("CACHE_LIMIT_MB", int64_t{2});
    EXPECT_TRUE(DiskCache(path).find("kernel", "0"));
  }
  const FlagScope scope("CACHE_LIMIT_MB", int64_t{1});
  DiskCache cache(path);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(cache.find("kernel", std::to_string(i)).has_value(), i >= 15) << i;
  cache.put("kernel", "0", "v");
  EXPECT_EQ(cache.find("kernel", "0"), "v");
  EXPECT_TRUE(DiskCache(path).find("kernel", "15"));  // half is below the limit
  const FlagScope none("CACHE_LIMIT_MB", int64_t{0});
  for (int i = 0; i < 6; ++i) DiskCache(path).usable();
  EXPECT_FALSE(DiskCache(path).find("kernel", "29"));
}

TEST(DiskCache, LevelZeroUsesNoFile) {
  const TempFolder folder;
  const FlagScope scope("CACHELEVEL", int64_t{0});
  DiskCache cache(folder.path("cache.db"));
  cache.put("kernel", "k", "v");
  EXPECT_FALSE(cache.find("kernel", "k"));
  EXPECT_EQ(folder.n_files(), 0);
}

TEST(DiskCache, ADamagedEntryIsAMiss) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  DiskCache(path).put("kernel", "k", "value");
  run_sql(path, "UPDATE entries_v2 SET value=x'00'");
  DiskCache cache(path);
  EXPECT_FALSE(cache.find("kernel", "k"));
  EXPECT_TRUE(was_said(path + " holds a damaged entry"));
  cache.put("kernel", "k", "again");
  EXPECT_EQ(cache.find("kernel", "k"), "again");
}

TEST(DiskCache, AFileThatIsNoDatabaseIsNotUsed) {
  const TempFolder folder;
  const std::string path = folder.write("cache.db", std::string(5000, 'x'));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  DiskCache cache(path);
  EXPECT_FALSE(cache.usable());
  cache.put("kernel", "k", "v");
  EXPECT_FALSE(cache.find("kernel", "k"));
  EXPECT_TRUE(was_said(path + " is not used: file is not a database"));
  EXPECT_EQ(folder.read("cache.db"), std::string(5000, 'x'));
}

TEST(DiskCache, AFileWithDamagedPagesIsNotUsed) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  {
    DiskCache cache(path);
    for (int i = 0; i < 200; ++i) cache.put("kernel", std::to_string(i), std::string(1000, 'v'));
  }
  std::string bytes = folder.read("cache.db");
  ASSERT_GT(bytes.size(), 8192u);
  for (size_t i = 4096; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  folder.write("cache.db", bytes);
  DiskCache cache(path);
  for (int i = 0; i < 200; ++i) {
    const auto found = cache.find("kernel", std::to_string(i));
    EXPECT_TRUE(!found || *found == std::string(1000, 'v') || *found == "w");
    cache.put("kernel", std::to_string(i), "w");
  }
  SUCCEED();
}

TEST(DiskCache, AFileThatOthersMayWriteIsNotTrusted) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  DiskCache(path).put("kernel", "k", "v");
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  DiskCache cache(path);
  EXPECT_FALSE(cache.find("kernel", "k"));
  EXPECT_TRUE(was_said(path + " is not used: others may write it (mode 666)"));
}

TEST(DiskCache, AFolderInTheWayIsNotUsed) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  DiskCache cache(path);
  EXPECT_FALSE(cache.usable());
  EXPECT_TRUE(was_said(path + " is not used"));
}

TEST(DiskCache, AReadOnlyFileIsReadAndNotWritten) {
  if (geteuid() == 0) {
    // The super-user may write everything, so a child without those rights does it.
    SUCCEED();
  }
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  DiskCache(path).put("kernel", "k", "v");
  const pid_t child = fork();
  if (child == 0) {
    if (chown(path.c_str(), 65534, 65534) != 0 && geteuid() == 0) _exit(0);
    if (chown(folder.path().c_str(), 65534, 65534) != 0 && geteuid() == 0) _exit(0);
    if (chmod(path.c_str(), 0400) != 0 || chmod(folder.path().c_str(), 0500) != 0) _exit(2);
    if (geteuid() == 0 && seteuid(65534) != 0) _exit(0);
    DiskCache cache(path);
    const bool found = cache.find("kernel", "k") == "v";
    cache.put("kernel", "k2", "v");
    _exit(!found ? 3 : cache.find("kernel", "k2") ? 4 : was_said("is read-only") ? 0 : 5);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  chmod(folder.path().c_str(), 0700);
}

TEST(DiskCache, NoSpaceIsSaidOnce) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  DiskCache(path).put("kernel", "k", "v");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    DiskCache cache(path);
    for (int i = 0; i < 100; ++i) cache.put("kernel", std::to_string(i), std::string(10'000, 'v'));
    _exit(!cache.usable() && was_said(path + " is not used") ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(DiskCache(path).find("kernel", "k"), "v");
}

TEST(DiskCache, AKilledWriterLeavesAUsableFile) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      DiskCache cache(path);
      for (int i = 0;; ++i) cache.put("kernel", std::to_string(i % 50), std::string(2000, 'v'));
    }
    usleep(30'000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    DiskCache cache(path);
    EXPECT_TRUE(cache.usable());
    for (int i = 0; i < 50; ++i) {
      const auto found = cache.find("kernel", std::to_string(i));
      EXPECT_TRUE(!found || *found == std::string(2000, 'v'));
    }
    EXPECT_FALSE(was_said(path));
  }
}

TEST(DiskCache, SeveralProcessesAndThreads) {
  const TempFolder folder;
  const std::string path = folder.path("cache.db");
  DiskCache cache(path);
  cache.put("kernel", "shared", "v");
  std::vector<pid_t> children;
  for (int p = 0; p < 3; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      // The open cache of the parent: the child must use a connection of its own.
      bool ok = cache.find("kernel", "shared") == "v";
      for (int i = 0; i < 50; ++i) {
        const std::string key = std::to_string(p) + "," + std::to_string(i);
        cache.put("kernel", key, key);
        ok = ok && cache.find("kernel", key) == key;
      }
      _exit(ok ? 0 : 1);
    }
    children.push_back(child);
  }
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) cache.put("kernel", "thread" + std::to_string(i), "t");
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(cache.find("kernel", "shared"), "v");
  other.join();
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cache.find("kernel", "2,49"), "2,49");
  EXPECT_EQ(cache.find("kernel", "thread49"), "t");
}

}  // namespace
}  // namespace whit
