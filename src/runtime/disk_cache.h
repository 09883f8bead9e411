// The cache on disk: kernels, search results and schedules in one SQLite file.
//
// Requirements:
//  1. A cache never fails a computation. What is wrong with the file is said once, and whit goes on without it.
//  2. What is read is what was written: every entry carries a checksum, and an entry that fails it is a miss.
//  3. The file holds machine code, so it is used only when this user owns it and nobody else may write it.
//  4. Safe with several processes and threads, after a crash, and in the child of a fork.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace whit {

class DiskCache {
 public:
  /// The cache of this process, at CACHEDB or in the user's cache folder. Follows the flag when it changes.
  static DiskCache& get();

  explicit DiskCache(std::string path);
  ~DiskCache();
  DiskCache& operator=(DiskCache&&) = delete;  // nor is it copied

  /// `table` keeps kinds of entries apart ("kernel", "beam"). Both do nothing when CACHELEVEL is 0.
  std::optional<std::string> find(std::string_view table, std::string_view key);
  void put(std::string_view table, std::string_view key, std::string_view value);
  /// False once the file proved unusable.
  bool usable();
  const std::string& path() const { return path_; }

 private:
  struct Impl;
  struct Open;
  std::string path_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace whit
