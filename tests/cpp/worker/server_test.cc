#include "worker/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <stdexcept>
#include <thread>

#include "tests/cpp/worker/fake_target.h"
#include "worker/protocol.h"

namespace cudaforge {
namespace {

using Pointers = std::span<void* const>;

// A server in a thread; the test sends it frames.
class Server : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = UniqueFd(ends[0]);
    theirs_ = UniqueFd(ends[1]);
    thread_ = std::thread([this] {
      const auto make = [this](const WorkerSetup& setup) {
        setup_ = setup;
        auto target = std::make_unique<FakeTarget>();
        target->kernel = kernel_;
        target->poisoned_now = poisoned_;
        return target;
      };
      end_ = ServeWorker(
          theirs_.get(),
          [&](const auto& setup) { return Result<std::unique_ptr<Target>>(make(setup)); },
          [&](const auto& setup) { return Result<std::unique_ptr<Compiler>>(make(setup)); });
      theirs_.Reset();
    });
  }
  void TearDown() override {
    ours_.Reset();
    thread_.join();
  }
  Json Ask(Json body, std::vector<UniqueFd> fds = {}) {
    Frame frame{std::move(body), std::move(fds)};
    EXPECT_TRUE(SendFrame(ours_.get(), frame, 1000).ok());
    auto reply = ReceiveFrame(ours_.get(), 5000);
    EXPECT_TRUE(reply.ok()) << reply.status().ToString();
    return reply.ok() ? reply->body : Json();
  }
  // As a device that launches in the worker's process.
  Json Hello(int protocol = kWorkerProtocol) {
    return Ask({{"command", "hello"},
                {"protocol", protocol},
                {"device", "cuda"},
                {"device_index", 0},
                {"cxx", "g++"},
                {"cuda_search_paths", Json::array()}});
  }
  Json Map(int id, const SharedMemory& memory, bool writable) {
    std::vector<UniqueFd> fds;
    fds.push_back(*memory.Export(writable));
    return Ask({{"command", "map"},
                {"mapping", id},
                {"bytes", memory.bytes()},
                {"writable", writable},
                {"shift", 0}},
               std::move(fds));
  }
  Json Load(std::string_view binary = "BINARY") {
    return LoadBody(ReluSignature(4).ToJson(), binary);
  }
  Json LoadBody(const Json& signature, std::string_view binary) {
    std::vector<UniqueFd> fds;
    fds.push_back(*MakeMemFile(binary));
    return Ask({{"command", "load"},
                {"candidate", CpuCandidate("x", 1, "4", 1).ToJson()},
                {"signature", signature},
                {"timeout_ms", 1000}},
               std::move(fds));
  }
  // Hello, an input, an output, and a loaded kernel.
  void Open() {
    Hello();
    EXPECT_EQ(Map(1, x_, false)["ok"], true);
    EXPECT_EQ(Map(2, y_, true)["ok"], true);
    EXPECT_EQ(Load()["verdict"]["verdict"], "accepted");
  }
  static Json Places(int64_t input = 0, int64_t output = 0) {
    return {{"inputs", Json::array({Json::array({1, input})})},
            {"outputs", Json::array({Json::array({2, output})})},
            {"scratch", Json::array()},
            {"prepare", false},
            {"split", "served"},
            {"seed", 1},
            {"threads", 0}};
  }
  static Json LaunchBody(Json places = Places()) {
    return {{"command", "launch"}, {"launch", std::move(places)}, {"timeout_ms", 1000}};
  }
  static Json TimeBody() {
    return {{"command", "time"},  {"launches", Json::array({Places()})},
            {"timeout_ms", 1000}, {"warm_inputs", Json::array()},
            {"samples", 3},       {"least", 3},
            {"total_ns", 1e9},    {"abandon_ns", 1e9}};
  }

  SharedMemory x_ = *ShareHostMemory(16);
  SharedMemory y_ = *ShareHostMemory(16);
  FakeKernel kernel_ = [](Pointers in, Pointers out, Pointers) {
    std::memcpy(out[0], in[0], 16);
    return Status::Ok();
  };
  bool poisoned_ = false;
  UniqueFd ours_, theirs_;
  std::thread thread_;
  Status end_;
  WorkerSetup setup_;
};

TEST_F(Server, CompilerRefusesOtherCommands) {
  const Json hello = Ask({{"command", "hello"},
                          {"protocol", kWorkerProtocol},
                          {"device", "cuda"},
                          {"device_index", 0},
                          {"cxx", ""},
                          {"cuda_search_paths", Json::array()},
                          {"compiles_for", "cuda:sm_90a"}});
  EXPECT_EQ(hello["arch"], "cuda:sm_90a");
  EXPECT_EQ(setup_.compiles_for, "cuda:sm_90a");
  const Json source = {{"language", "cpu"}, {"code", "code"}};
  const Json compiled = Ask({{"command", "compile"}, {"source", source}, {"timeout_ms", 1000}});
  EXPECT_EQ(compiled["ok"], true);
  EXPECT_EQ(Ask({{"command", "facts"}})["ok"], false);
  EXPECT_EQ(Map(1, x_, false)["ok"], false);
}

TEST_F(Server, HelloCompileLaunchTime) {
  EXPECT_EQ(Hello()["arch"], "cpu:fake");
  EXPECT_EQ(setup_.cxx, "g++");
  const Json compiled = Ask({{"command", "compile"},
                             {"source", {{"language", "cpu"}, {"code", "bad"}}},
                             {"timeout_ms", 100}});
  EXPECT_EQ(compiled["compiled"], false);
  EXPECT_EQ(compiled["log"], "log of bad");
  EXPECT_EQ(compiled["resources"], Json({{"f", {{"registers", 8}}}}));
  Map(1, x_, false);
  Map(2, y_, true);
  EXPECT_EQ(Load()["verdict"]["verdict"], "accepted");
  std::memset(x_.data(), 7, 16);
  const Json ran = Ask(LaunchBody());
  EXPECT_EQ(ran["verdict"]["verdict"], "accepted") << ran;
  EXPECT_EQ(std::memcmp(y_.data(), x_.data(), 16), 0);
  EXPECT_EQ(Ask(TimeBody())["nanoseconds"], 20.0);
}

TEST_F(Server, WrongVersionIsRefused) {
  const Json reply = Hello(kWorkerProtocol + 1);
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"].get<std::string>().find("protocol"), std::string::npos);
}

TEST_F(Server, InvalidRequestsGetAnErrorAndServiceContinues) {
  EXPECT_EQ(Ask(LaunchBody())["ok"], false) << "before hello";
  Open();
  EXPECT_EQ(Ask({{"command", "dance"}})["ok"], false);
  EXPECT_EQ(Ask({{"nothing", 1}})["ok"], false);
  EXPECT_EQ(Ask({{"command", "launch"}})["ok"], false);
  EXPECT_EQ(Ask(LaunchBody(Places(-1)))["ok"], false);
  EXPECT_EQ(Ask(LaunchBody(Places(0, y_.bytes() - 8)))["ok"], false);
  EXPECT_EQ(Map(1, x_, false)["ok"], false) << "there already";
  Json signature = ReluSignature(4).ToJson();
  signature["format"] = 99;
  EXPECT_EQ(LoadBody(signature, "BINARY")["ok"], false);
  EXPECT_EQ(Ask(LaunchBody())["ok"], false) << "nothing is loaded";
  EXPECT_EQ(Load("JUNK")["verdict"]["verdict"], "launch_error");
  EXPECT_EQ(Load()["verdict"]["verdict"], "accepted");
  EXPECT_EQ(Ask(LaunchBody())["verdict"]["verdict"], "accepted");
}

TEST_F(Server, DeviceErrorEndsTheServiceAfterTheReply) {
  kernel_ = [](Pointers, Pointers, Pointers) { return Status::Internal("launch failed"); };
  Open();
  const Json reply = Ask(LaunchBody());
  EXPECT_EQ(reply["verdict"]["verdict"], "launch_error");
  EXPECT_EQ(reply["fatal"], true);
  EXPECT_EQ(ReceiveFrame(ours_.get(), 5000).status().code(), StatusCode::kIoError);
}

TEST_F(Server, ExceptionOfALaunchIsAnError) {
  kernel_ = [](Pointers, Pointers, Pointers) -> Status { throw std::runtime_error("no room"); };
  Open();
  Json reply = Ask(LaunchBody());
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"].get<std::string>().find("no room"), std::string::npos) << reply;
  EXPECT_EQ(reply["fatal"], true);
  EXPECT_EQ(ReceiveFrame(ours_.get(), 5000).status().code(), StatusCode::kIoError);
}

TEST_F(Server, FailedCheckIsNoVerdict) {
  kernel_ = [](Pointers, Pointers, Pointers) -> Status {
    CF_CHECK(false) << "never true";
    return Status::Ok();
  };
  Open();
  const Json reply = Ask(LaunchBody());
  EXPECT_EQ(reply["ok"], false);
  EXPECT_EQ(reply["internal"], true);
  EXPECT_NE(reply["error"].get<std::string>().find("please report"), std::string::npos) << reply;
  EXPECT_EQ(reply["fatal"], true);
  EXPECT_FALSE(reply.contains("verdict"));
}

TEST_F(Server, ExceptionOfUnknownTypeIsAnError) {
  kernel_ = [](Pointers, Pointers, Pointers) -> Status { throw 1; };
  Open();
  EXPECT_EQ(Ask(LaunchBody())["ok"], false);
}

TEST_F(Server, ExceptionOfACompilationIsAFailure) {
  Hello();
  Json reply = Ask({{"command", "compile"},
                    {"source", {{"language", "cpu"}, {"code", "throw"}}},
                    {"timeout_ms", 100}});
  EXPECT_EQ(reply["compiled"], false) << reply;
  EXPECT_NE(reply["log"].get<std::string>().find("bad_alloc"), std::string::npos);
  EXPECT_EQ(reply["fatal"], true);
}

TEST_F(Server, ExceptionOfATimingIsAnError) {
  kernel_ = [](Pointers, Pointers, Pointers) -> Status { throw std::runtime_error("no room"); };
  Open();
  Json reply = Ask(TimeBody());
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"].get<std::string>().find("no room"), std::string::npos) << reply;
  EXPECT_EQ(reply["fatal"], true);
}

TEST_F(Server, PoisonedTargetEndsTheWorker) {
  poisoned_ = true;
  Hello();
  EXPECT_EQ(Load()["fatal"], true);
}

TEST_F(Server, ProfileAndFacts) {
  int calls = 0;
  kernel_ = [&](Pointers, Pointers, Pointers) {
    ++calls;
    return Status::Ok();
  };
  Open();
  Json body = LaunchBody();
  body["command"] = "profile";
  body["tier"] = 3;
  const Json profile = Ask(body);
  ASSERT_EQ(profile["ok"], true) << profile;
  EXPECT_EQ(profile["profile"]["tier"], 3);
  EXPECT_TRUE(profile["profile"]["kernels"].is_array());
  EXPECT_EQ(calls, 3);
  const Json facts = Ask({{"command", "facts"}});
  EXPECT_EQ(facts["facts"]["bandwidth_gb_s"], 1.5) << facts;
  for (const Json& tier : {Json(-1), Json(5), Json("1"), Json()}) {
    body["tier"] = tier;
    EXPECT_EQ(Ask(body)["ok"], false) << tier;
  }
  EXPECT_EQ(Ask(LaunchBody())["verdict"]["verdict"], "accepted") << "the service goes on";
}

TEST_F(Server, FailedProfileIsAnError) {
  kernel_ = [](Pointers, Pointers, Pointers) { return Status::Internal("launch failed"); };
  Open();
  Json body = LaunchBody();
  body["command"] = "profile";
  body["tier"] = 1;
  const Json reply = Ask(body);
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"].get<std::string>().find("launch failed"), std::string::npos);
  EXPECT_FALSE(reply.contains("fatal"));
  body["tier"] = 0;
  EXPECT_EQ(Ask(body)["ok"], true);
}

TEST_F(Server, FatalProfileEndsTheService) {
  poisoned_ = true;
  Hello();
  EXPECT_EQ(Ask({{"command", "facts"}})["fatal"], true);
  EXPECT_EQ(ReceiveFrame(ours_.get(), 5000).status().code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace cudaforge
