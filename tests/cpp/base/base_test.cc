#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "base/config.h"
#include "base/dynamic_library.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status.h"

namespace cudaforge {
namespace {

TEST(StatusTest, CarriesCodeAndMessage) {
  EXPECT_TRUE(Status::Ok().ok());
  EXPECT_EQ(Status::Ok().ToString(), "ok");
  EXPECT_EQ(Status::Corruption("bad").ToString(), "corruption: bad");
}

TEST(StatusTest, CodesAreReadByTheirNames) {
  for (const StatusCode code : {StatusCode::kOk, StatusCode::kInvalidArgument, StatusCode::kTimeout,
                                StatusCode::kInternal}) {
    EXPECT_EQ(ParseStatusCode(StatusCodeName(code)), code);
  }
  for (const char* other : {"", "OK", "unknown status", "internal"}) {
    EXPECT_EQ(ParseStatusCode(other), std::nullopt) << other;
  }
}

Result<int> Half(int n) {
  if (n % 2 != 0) return Status::InvalidArgument("odd");
  return n / 2;
}
Result<int> Quarter(int n) {
  CF_ASSIGN_OR_RETURN(const int half, Half(n));
  return Half(half);
}

TEST(ResultTest, PropagatesErrors) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_THROW((void)Quarter(6).value(), CheckError);
}

TEST(CheckTest, MessageNamesTheConditionAndTheReason) {
  try {
    CF_CHECK(1 > 2) << "because " << 3;
    FAIL();
  } catch (const CheckError& error) {
    EXPECT_NE(std::string(error.what()).find("1 > 2"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("because 3"), std::string::npos);
  }
}

TEST(Sha256Test, KnownAnswers) {  // FIPS 180-4 examples
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Number("abc"), 0xba7816bf8f01cfeau);
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DynamicLibraryTest, OpensTheFirstThatWorks) {
  Result<DynamicLibrary> library = DynamicLibrary::Open({"/no/such.so", "libm.so.6"});
  ASSERT_TRUE(library.ok()) << library.status().ToString();
  EXPECT_EQ(library->path(), "libm.so.6");
  EXPECT_NE(library->Symbol("cos"), nullptr);
  EXPECT_EQ(library->Symbol("no_such_symbol"), nullptr);
  const Status missing = DynamicLibrary::Open({"/no/a.so", "/no/b.so"}).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound) << missing.ToString();
  EXPECT_NE(missing.message().find("/no/b.so"), std::string::npos);
}

TEST(DynamicLibraryTest, DistinguishesMissingFromUnloadable) {
  const auto code_of = [](const std::vector<std::string>& names) {
    return DynamicLibrary::Open(names).status().code();
  };
  EXPECT_EQ(code_of({"libno-such-library.so.1"}), StatusCode::kNotFound);
  const TempDir folder = TempDir::Create("cudaforge-test-").value();
  const std::string junk = folder.path() + "/junk.so";
  ASSERT_TRUE(WriteFileAtomic(junk, "no library").ok());
  EXPECT_EQ(code_of({junk}), StatusCode::kUnavailable);
  EXPECT_EQ(code_of({"/no/a.so", junk, "/no/b.so"}), StatusCode::kUnavailable);
}

TEST(ConfigTest, Defaults) {
  const Config config = ReadConfig({{"HOME", "/home/u"}});
  EXPECT_FALSE(config.disabled);
  EXPECT_EQ(config.on_miss, "");
  EXPECT_EQ(config.region_budget_s, 30);
  EXPECT_EQ(config.cache_dir, "/home/u/.cache/cudaforge");
  EXPECT_TRUE(config.warnings.empty());
}

TEST(ConfigTest, ValuesAreRead) {
  const Config config = ReadConfig({{"CUDAFORGE_DISABLE", "1"},
                                    {"CUDAFORGE_ON_MISS", "blocking"},
                                    {"CUDAFORGE_REGION_BUDGET_S", "2.5"},
                                    {"XDG_CACHE_HOME", "/xdg"},
                                    {"CUDAFORGE_CXX", "clang++"},
                                    {"CUDAFORGE_CUDA_PATH", "/usr::/tmp"},
                                    {"CUDA_PATH", "/d"},
                                    {"CUDA_HOME", "/c"},
                                    {"CUDAFORGE_WORKER", "/w"},
                                    {"OMP_NUM_THREADS", "3,2"},
                                    {"CUDAFORGE_LOG", "forge,cache"}});
  EXPECT_TRUE(config.disabled);
  EXPECT_EQ(config.on_miss, "blocking");
  EXPECT_EQ(config.region_budget_s, 2.5);
  EXPECT_EQ(config.cache_dir, "/xdg/cudaforge");
  EXPECT_EQ(config.cxx, "clang++");
  EXPECT_EQ(config.cuda_path, (std::vector<std::string>{"/usr", "/tmp"}));
  EXPECT_EQ(config.cuda_home, (std::vector<std::string>{"/c", "/d"}));
  EXPECT_EQ(config.worker, "/w");
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.log, (std::vector<std::string>{"forge", "cache"}));
}

TEST(ConfigTest, RelativePathsAreResolvedWhenRead) {
  const Result<TempDir> folder = TempDir::Create("cudaforge-config-");
  ASSERT_TRUE(folder.ok() && MakeDirs(folder->path() + "/cuda").ok());
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(folder->path());
  const Config config = ReadConfig({{"CUDAFORGE_CACHE_DIR", "kernels"},
                                    {"CUDAFORGE_CXX", "bin/g++"},
                                    {"CUDAFORGE_WORKER", "bin/worker"},
                                    {"CUDAFORGE_CUDA_PATH", "cuda"},
                                    {"CUDA_HOME", "home"}});
  const Config others =
      ReadConfig({{"HOME", "me"}, {"CUDAFORGE_CXX", "clang++"}, {"CUDAFORGE_WORKER", "my-worker"}});
  std::filesystem::current_path(before);
  EXPECT_EQ(config.cache_dir, folder->path() + "/kernels");
  EXPECT_EQ(config.cxx, folder->path() + "/bin/g++");
  EXPECT_EQ(config.worker, folder->path() + "/bin/worker");
  EXPECT_EQ(config.cuda_path, std::vector<std::string>{folder->path() + "/cuda"});
  EXPECT_EQ(config.cuda_home, std::vector<std::string>{folder->path() + "/home"});
  EXPECT_EQ(others.cache_dir, folder->path() + "/me/.cache/cudaforge");
  EXPECT_EQ(others.cxx, "clang++") << "looked for on PATH";
  EXPECT_EQ(others.worker, "my-worker");
}

TEST(ConfigTest, BadValuesGiveOneWarningEachAndTheDefault) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"CUDAFORGE_DISABLE", "yes"},
                                          {"CUDAFORGE_ON_MISS", "sometimes"},
                                          {"CUDAFORGE_REGION_BUDGET_S", "-1"},
                                          {"CUDAFORGE_LOG", "nonsense"}}) {
    const Config config = ReadConfig({{name, value}});
    ASSERT_EQ(config.warnings.size(), 1u) << name;
    EXPECT_NE(config.warnings[0].find(name), std::string::npos);
    EXPECT_NE(config.warnings[0].find(value), std::string::npos);
    EXPECT_FALSE(config.disabled);
    EXPECT_EQ(config.on_miss, "");
    EXPECT_EQ(config.region_budget_s, 30);
    EXPECT_TRUE(config.log.empty());
  }
}

TEST(ConfigTest, MissingFolderGivesAWarning) {
  const Config config = ReadConfig({{"CUDAFORGE_CUDA_PATH", "/no/cuda:/tmp:/dev/null"}});
  EXPECT_EQ(config.cuda_path, (std::vector<std::string>{"/tmp"}));
  EXPECT_EQ(
      config.warnings,
      (std::vector<std::string>{"CUDAFORGE_CUDA_PATH=/no/cuda is not used: there is no such folder",
                                "CUDAFORGE_CUDA_PATH=/dev/null is not used: there is no such "
                                "folder"}));
}

TEST(ConfigTest, UnknownNameGivesAWarningWithKnownNames) {
  const Config config = ReadConfig({{"CUDAFORGE_ONMISS", "blocking"},
                                    {"CUDAFORGE_USE_CURRENT_ENV", "1"},
                                    {"CUDAFORGES", "x"},
                                    {"CUDAFORGE_WORKER", "/w"}});
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_TRUE(config.warnings[0].starts_with("CUDAFORGE_ONMISS is not used: "));
  EXPECT_NE(config.warnings[0].find("CUDAFORGE_ON_MISS"), std::string::npos);
}

TEST(ConfigTest, UnknownNamesValueIsHidden) {
  const Config config = ReadConfig({{"CUDAFORGE_CODER_KEY", "sk-secret"}});
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_NE(config.warnings[0].find("CUDAFORGE_CODER_KEY"), std::string::npos);
  EXPECT_EQ(config.warnings[0].find("secret"), std::string::npos);
}

TEST(ConfigTest, InvalidUtf8CompilerIsIgnored) {
  const Config config = ReadConfig({{"CUDAFORGE_CXX", "/opt/\xe9/g++"}});
  EXPECT_EQ(config.cxx, "");
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_TRUE(config.warnings[0].starts_with("CUDAFORGE_CXX=/opt/\\xe9/g++ is not used: "));
}

TEST(ConfigTest, WarningsArePlainAscii) {
  const Config config = ReadConfig({{"CUDAFORGE_LOG", "\xe9\x1b"}, {"CUDAFORGE_\xff", "1"}});
  ASSERT_EQ(config.warnings.size(), 2u);
  EXPECT_TRUE(config.warnings[0].starts_with("CUDAFORGE_LOG=\\xe9\\x1b is not used: "));
  EXPECT_TRUE(config.warnings[1].starts_with("CUDAFORGE_\\xff is not used: "));
}

}  // namespace
}  // namespace cudaforge
