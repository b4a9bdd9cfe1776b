#include "worker/server.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <thread>

#include "tests/cpp/worker/fake_target.h"
#include "worker/protocol.h"

namespace cudaforge {
namespace {

using Pointers = std::span<void* const>;

// A server in a thread, spoken to frame by frame.
class Server : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_ = UniqueFd(ends[0]);
    theirs_ = UniqueFd(ends[1]);
    thread_ = std::thread([this] {
      end_ = ServeWorker(theirs_.get(), [this](const WorkerSetup& setup) {
        setup_ = setup;
        auto target = std::make_unique<FakeTarget>();
        target->kernel = kernel_;
        target->poisoned_now = poisoned_;
        return Result<std::unique_ptr<Target>>(std::move(target));
      });
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
  Json Hello(int protocol = kWorkerProtocol) {
    return Ask({{"command", "hello"},
                {"protocol", protocol},
                {"device", "cpu"},
                {"device_index", 0},
                {"cxx", "g++"},
                {"cuda_search_paths", Json::array()}});
  }
  Json RunBody() {
    const OpSignature signature = ReluSignature(4);
    return {{"command", "run"},
            {"candidate", CpuCandidate("x", 1, "4", 1).ToJson()},
            {"signature", signature.ToJson()},
            {"inputs", Json::array({{{"at", 0}, {"shift", 0}}})},
            {"outputs", Json::array({{{"at", 0}}})},
            {"poison", 255},
            {"fence", 0},
            {"again", false},
            {"new_thread", false},
            {"guard_seed", 1}};
  }
  std::vector<UniqueFd> RunFds(std::string_view binary = "BINARY", int64_t input_bytes = 16) {
    std::vector<UniqueFd> fds;
    fds.push_back(*MakeMemFile(binary));
    fds.push_back(*MakeMemFile(input_bytes));
    fds.push_back(*MakeMemFile(int64_t{16}));
    return fds;
  }

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

TEST_F(Server, HelloCompileRunTime) {
  EXPECT_EQ(Hello()["arch"], "cpu:fake");
  EXPECT_EQ(setup_.cxx, "g++");
  const Json compiled = Ask({{"command", "compile"},
                             {"source", {{"language", "cpu"}, {"code", "bad"}}},
                             {"timeout_ms", 100}});
  EXPECT_EQ(compiled["compiled"], false);
  EXPECT_EQ(compiled["log"], "log of bad");
  EXPECT_EQ(compiled["resources"], Json({{"f", {{"registers", 8}}}}));
  const Json ran = Ask(RunBody(), RunFds());
  EXPECT_EQ(ran["verdict"]["verdict"], "accepted") << ran;
  Json time = RunBody();
  time["command"] = "time";
  time.update({{"samples", 3}, {"least", 3}, {"total_ns", 1e9}, {"abandon_ns", 1e9}});
  EXPECT_EQ(Ask(time, RunFds())["nanoseconds"], 20.0);
}

TEST_F(Server, WrongVersionIsRefused) {
  const Json reply = Hello(kWorkerProtocol + 1);
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"].get<std::string>().find("protocol"), std::string::npos);
}

TEST_F(Server, WrongRequestsGetAnErrorAndTheServiceGoesOn) {
  EXPECT_EQ(Ask(RunBody(), RunFds())["ok"], false) << "before hello";
  Hello();
  EXPECT_EQ(Ask({{"command", "dance"}})["ok"], false);
  EXPECT_EQ(Ask({{"nothing", 1}})["ok"], false);
  EXPECT_EQ(Ask(RunBody())["ok"], false) << "no descriptors";
  EXPECT_EQ(Ask(RunBody(), RunFds("BINARY", 8))["ok"], false) << "inputs too short";
  Json body = RunBody();
  body["inputs"][0]["at"] = -1;
  EXPECT_EQ(Ask(body, RunFds())["ok"], false);
  body = RunBody();
  body["outputs"][0]["at"] = 8;
  EXPECT_EQ(Ask(body, RunFds())["ok"], false);
  body = RunBody();
  body["signature"]["format"] = 99;
  EXPECT_EQ(Ask(body, RunFds())["ok"], false);
  std::vector<UniqueFd> unsealed = RunFds();
  unsealed[1] = UniqueFd(memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed[1].get(), 16), 0);
  EXPECT_EQ(Ask(RunBody(), std::move(unsealed))["ok"], false) << "could shrink under the reader";
  EXPECT_EQ(Ask(RunBody(), RunFds("JUNK"))["verdict"]["verdict"], "launch_error");
  EXPECT_EQ(Ask(RunBody(), RunFds())["verdict"]["verdict"], "accepted");
}

TEST_F(Server, DeviceErrorEndsTheServiceAfterTheReply) {
  kernel_ = [](Pointers, Pointers, Pointers) { return Status::Internal("launch failed"); };
  Hello();
  const Json reply = Ask(RunBody(), RunFds());
  EXPECT_EQ(reply["verdict"]["verdict"], "launch_error");
  EXPECT_EQ(reply["fatal"], true);
  EXPECT_EQ(ReceiveFrame(ours_.get(), 5000).status().code(), StatusCode::kIoError);
}

TEST_F(Server, ExceptionOfARunIsACrash) {
  kernel_ = [](Pointers, Pointers, Pointers) -> Status { throw std::runtime_error("no room"); };
  Hello();
  Json reply = Ask(RunBody(), RunFds());
  EXPECT_EQ(reply["verdict"]["verdict"], "crashed") << reply;
  EXPECT_NE(reply["verdict"]["message"].get<std::string>().find("no room"), std::string::npos);
  EXPECT_EQ(reply["fatal"], true);
  EXPECT_EQ(ReceiveFrame(ours_.get(), 5000).status().code(), StatusCode::kIoError);
}

TEST_F(Server, AFailedCheckOfOurOwnIsNoVerdict) {
  kernel_ = [](Pointers, Pointers, Pointers) -> Status {
    CF_CHECK(false) << "room for guards";
    return Status::Ok();
  };
  Hello();
  const Json reply = Ask(RunBody(), RunFds());
  EXPECT_EQ(reply["ok"], false);
  EXPECT_EQ(reply["internal"], true);
  EXPECT_NE(reply["error"].get<std::string>().find("please report"), std::string::npos) << reply;
  EXPECT_EQ(reply["fatal"], true);
  EXPECT_FALSE(reply.contains("verdict"));
}

TEST_F(Server, ExceptionOfUnknownTypeIsACrash) {
  kernel_ = [](Pointers, Pointers, Pointers) -> Status { throw 1; };
  Hello();
  EXPECT_EQ(Ask(RunBody(), RunFds())["verdict"]["verdict"], "crashed");
}

TEST_F(Server, ExceptionOfACompilationIsAFailedOne) {
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
  Hello();
  Json time = RunBody();
  time["command"] = "time";
  time.update({{"samples", 3}, {"least", 3}, {"total_ns", 1e9}, {"abandon_ns", 1e9}});
  Json reply = Ask(time, RunFds());
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"].get<std::string>().find("no room"), std::string::npos) << reply;
  EXPECT_EQ(reply["fatal"], true);
}

TEST_F(Server, PoisonedTargetIsGivenUp) {
  poisoned_ = true;
  Hello();
  EXPECT_EQ(Ask(RunBody(), RunFds())["fatal"], true);
}

TEST_F(Server, ProfileAndFacts) {
  int calls = 0;
  kernel_ = [&](Pointers, Pointers, Pointers) {
    ++calls;
    return Status::Ok();
  };
  Hello();
  Json body = RunBody();
  body["command"] = "profile";
  body["tier"] = 3;
  const Json profile = Ask(body, RunFds());
  ASSERT_EQ(profile["ok"], true) << profile;
  EXPECT_EQ(profile["profile"]["tier"], 3);
  EXPECT_TRUE(profile["profile"]["kernels"].is_array());
  EXPECT_EQ(calls, 3);
  const Json facts = Ask({{"command", "facts"}});
  EXPECT_EQ(facts["facts"]["bandwidth_gb_s"], 1.5) << facts;
  for (const Json& tier : {Json(-1), Json(5), Json("1"), Json()}) {
    body["tier"] = tier;
    EXPECT_EQ(Ask(body, RunFds())["ok"], false) << tier;
  }
  body["tier"] = 1;
  EXPECT_EQ(Ask(body, RunFds("JUNK"))["ok"], false) << "cannot be loaded";
  EXPECT_EQ(Ask(RunBody(), RunFds())["verdict"]["verdict"], "accepted") << "the service goes on";
}

TEST_F(Server, AProfileThatFailsIsAnError) {
  kernel_ = [](Pointers, Pointers, Pointers) { return Status::Internal("launch failed"); };
  Hello();
  Json body = RunBody();
  body["command"] = "profile";
  body["tier"] = 1;
  const Json reply = Ask(body, RunFds());
  EXPECT_EQ(reply["ok"], false);
  EXPECT_NE(reply["error"].get<std::string>().find("launch failed"), std::string::npos);
  EXPECT_FALSE(reply.contains("fatal"));
  body["tier"] = 0;
  EXPECT_EQ(Ask(body, RunFds())["ok"], true);
}

TEST_F(Server, AProfileThatLosesTheDeviceEndsTheService) {
  poisoned_ = true;
  Hello();
  EXPECT_EQ(Ask({{"command", "facts"}})["fatal"], true);
  EXPECT_EQ(ReceiveFrame(ours_.get(), 5000).status().code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace cudaforge
