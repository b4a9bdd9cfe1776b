// A test's body under a locale with another decimal point and with grouped digits.
#pragma once

#include <cstdlib>
#include <locale>
#include <map>
#include <string>

#include "base/file.h"
#include "base/subprocess.h"

// glibc leaks its own copy of LOCPATH on each use of it.
extern "C" inline __attribute__((used, visibility("default"))) const char*
__lsan_default_suppressions() {
  return "leak:__argz_add_sep\n";
}

namespace cudaforge {

// Sets the process's C and C++ locale until it is destroyed. Compiles the locale with localedef
// into a temporary folder. Its sources are in Debian's package `locales`.
class InLocale {
 public:
  // `name` is that of a source: "de_DE" has "1.000,5".
  explicit InLocale(const std::string& name) {
    const std::string& folder = FolderOf(name);
    if (folder.empty()) return;
    setenv("LOCPATH", folder.c_str(), /*overwrite=*/1);
    std::locale::global(std::locale(FullName(name)));  // of C, too
    there_ = true;
  }
  InLocale(const InLocale&) = delete;
  InLocale& operator=(const InLocale&) = delete;
  ~InLocale() {
    std::locale::global(std::locale::classic());
    unsetenv("LOCPATH");
  }

  // False if the locale could not be made: skip the test with kMissing.
  bool there() const { return there_; }
  static constexpr const char* kMissing =
      "localedef makes no locale here; install Debian's package locales";

 private:
  static std::string FullName(const std::string& name) { return name + ".UTF-8"; }

  // The folder with it, made once per process; empty if that failed.
  static const std::string& FolderOf(const std::string& name) {
    static const Result<TempDir> all = TempDir::Create("cudaforge-locales-");
    static std::map<std::string, std::string> made;
    const auto [found, fresh] = made.try_emplace(name);
    if (fresh && all.ok()) {
      const std::string folder = all->path() + "/" + name;
      const Status status = MakeDirs(folder);
      const Result<ProcessResult> run =
          RunProcess({"localedef", "-i", name, "-f", "UTF-8", folder + "/" + FullName(name)});
      if (status.ok() && run.ok() && run->exit_code == 0) found->second = folder;
    }
    return found->second;
  }

  bool there_ = false;
};

}  // namespace cudaforge
