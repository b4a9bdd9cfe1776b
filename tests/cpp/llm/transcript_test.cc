#include "llm/transcript.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "chat_events.h"
#include "http_server.h"
#include "llm/numbered_files.h"

namespace cudaforge {
namespace {

class TranscriptTest : public testing::Test {
 protected:
  TranscriptTest() : dir_(*TempDir::Create("transcript_test")), path_(dir_.path() + "/tape") {}

  // Records the replies that a server gives to `questions`; the last answer is a refusal.
  std::vector<Result<Reply>> Record(const std::vector<std::string>& questions) {
    std::vector<ScriptedServer::Script> scripts;
    for (size_t i = 0; i + 1 < questions.size(); ++i) {
      const std::string text = "reply " + std::to_string(i) + " \xc3\xa9 " + std::string(kTestKey);
      scripts.push_back(Says(std::string(kStreamHead) + OpenAiStream({text})));
    }
    scripts.push_back(Says(HttpText("401 Unauthorized", "bad key " + std::string(kTestKey))));
    ScriptedServer server(std::move(scripts));
    auto provider = MakeProvider("record:" + path_ + ":openai:m", LocalSettings(server.url()));
    EXPECT_TRUE(provider.ok()) << provider.status().ToString();
    EXPECT_EQ((*provider)->name(), "openai:m");
    std::vector<Result<Reply>> replies;
    for (const std::string& question : questions) {
      replies.push_back((*provider)->Complete(Ask(question), Cancel(), {}));
    }
    return replies;
  }
  Result<Reply> Replay(Provider& provider, const std::string& question) {
    return provider.Complete(Ask(question, /*total_s=*/1), Cancel(), {});
  }

  TempDir dir_;
  std::string path_;
};

TEST_F(TranscriptTest, ReplaysRecordings) {
  const auto recorded = Record({"one", "two", "three"});
  const auto provider = MakeProvider("replay:" + path_, {});
  ASSERT_TRUE(provider.ok()) << provider.status().ToString();
  for (size_t i = 0; i < 3; ++i) {
    const Result<Reply> again = Replay(**provider, std::vector{"one", "two", "three"}[i]);
    ASSERT_EQ(again.ok(), recorded[i].ok());
    if (again.ok()) {
      EXPECT_EQ(ToJson(*again), ToJson(*recorded[i]));
    }
    EXPECT_EQ(again.status().ToString(), recorded[i].status().ToString());
  }
  EXPECT_FALSE(recorded[2].ok());
  const Result<Reply> more = Replay(**provider, "one");
  EXPECT_EQ(more.status().code(), StatusCode::kNotFound);
}

TEST_F(TranscriptTest, NoKeyIsRecorded) {
  Record({"one", "two"});
  const auto names = ListNumbered(path_, "-exchange.json");
  ASSERT_TRUE(names.ok());
  ASSERT_EQ(names->size(), 2u);
  for (const std::string& name : *names) {
    const std::string text = *ReadFile(path_ + "/" + name);
    EXPECT_EQ(text.find(kTestKey), std::string::npos);
    EXPECT_NE(text.find("[key]"), std::string::npos);
  }
}

TEST_F(TranscriptTest, KeysInProgramOutputAreNotRecorded) {
  ProviderSettings settings;
  settings.environment["OPENAI_API_KEY"] = kTestKey;
  const auto provider = MakeProvider(
      "record:" + path_ + ":command:printf {\"content\":\"" + std::string(kTestKey) + "\"}",
      settings);
  ASSERT_TRUE(provider.ok());
  EXPECT_TRUE((*provider)->Complete(Ask("?"), Cancel(), {}).ok());
  const std::string text = *ReadFile(path_ + "/0001-exchange.json");
  EXPECT_EQ(text.find(kTestKey), std::string::npos);
  EXPECT_NE(text.find("\"content\": \"[key]\""), std::string::npos) << text;
}

TEST_F(TranscriptTest, KeysInProgramErrorsAreHidden) {
  ProviderSettings settings;
  settings.environment["ANTHROPIC_API_KEY"] = kTestKey;
  const std::string script = dir_.path() + "/fails.sh";
  ASSERT_TRUE(
      WriteFileAtomic(script, "echo bad key " + std::string(kTestKey) + " >&2; exit 2\n").ok());
  for (const std::string& recorded : {std::string(), "record:" + path_ + ":"}) {
    const auto provider = MakeProvider(recorded + "command:sh " + script, settings);
    ASSERT_TRUE(provider.ok()) << provider.status().ToString();
    const Status status = (*provider)->Complete(Ask("?"), Cancel(), {}).status();
    EXPECT_EQ(status.message(), "command:sh ended with exit code 2: bad key [key]");
  }
  const std::string text = *ReadFile(path_ + "/0001-exchange.json");
  EXPECT_EQ(text.find(kTestKey), std::string::npos);
  EXPECT_NE(text.find("bad key [key]"), std::string::npos) << text;
}

TEST_F(TranscriptTest, KeysInRecordingsAreHidden) {
  ASSERT_TRUE(MakeDirs(path_).ok());
  const Json exchange = {{"request", ToJson(Ask("?"))},
                         {"reply", {{"content", "a " + std::string(kTestKey)}}}};
  ASSERT_TRUE(WriteFileAtomic(path_ + "/0001-exchange.json", exchange.dump()).ok());
  ProviderSettings settings;
  settings.environment["OPENAI_API_KEY"] = kTestKey;
  const auto provider = MakeProvider("replay:" + path_, settings);
  ASSERT_TRUE(provider.ok()) << provider.status().ToString();
  EXPECT_EQ(Replay(**provider, "?")->content, "a [key]");
}

TEST_F(TranscriptTest, AnswersASimilarRequestWithANote) {
  Record({"a question about x", "two", "three"});
  const auto provider = MakeProvider("replay:" + path_, {});
  ASSERT_TRUE(provider.ok());
  LlmRequest request = Ask("a question about x");
  request.role = AgentRole::kJudge;
  const Status judge = (*provider)->Complete(request, Cancel(), {}).status();
  EXPECT_EQ(judge.code(), StatusCode::kNotFound);
  EXPECT_NE(judge.message().find("\"judge\""), std::string::npos) << judge.message();

  const Result<Reply> two = Replay(**provider, "two");  // the same request comes first
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->note, "");
  EXPECT_EQ(two->content, "reply 1 \xc3\xa9 [key]");
  const Result<Reply> other = Replay(**provider, "a question about y");
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  EXPECT_EQ(other->content, "reply 0 \xc3\xa9 [key]");
  EXPECT_NE(other->note.find("messages[1].content, byte 17: recorded \"x\", now \"y\""),
            std::string::npos)
      << other->note;
  EXPECT_NE(other->note.find("0001-exchange.json"), std::string::npos);
  EXPECT_EQ(Replay(**provider, "y").status().code(), StatusCode::kInvalidArgument);  // as recorded
  EXPECT_EQ(Replay(**provider, "y").status().code(), StatusCode::kNotFound);
}

TEST_F(TranscriptTest, IgnoresThePromptsMark) {
  const auto prompt = [](const std::string& mark, const std::string& time) {
    return "The marks of this message carry the number " + mark + ".\n<data-" + mark +
           " device>\n" + time + "\n</data-" + mark + ">";
  };
  const std::string a = "0123456789abcdef", b = "fedcba9876543210";
  Record({"first", prompt(a, "1 us"), prompt(a, "2 us"), "last"});
  const auto provider = MakeProvider("replay:" + path_, {});
  ASSERT_TRUE(provider.ok());
  EXPECT_FALSE((*provider)->is_metered());
  EXPECT_TRUE((*provider)->is_replay());
  const Result<Reply> same = Replay(**provider, prompt(b, "2 us"));
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->note, "");
  EXPECT_EQ(same->content, "reply 2 \xc3\xa9 [key]");
  ASSERT_TRUE(Replay(**provider, "first").ok());
  const Result<Reply> other = Replay(**provider, prompt(b, "3 us"));
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->note.find("recorded \"1 us"), std::string::npos) << other->note;
}

TEST_F(TranscriptTest, TooLargeRecordingsAreRefused) {
  ASSERT_TRUE(MakeDirs(path_).ok());
  const auto make = [this](int number, size_t bytes) {
    const std::string file = path_ + "/" + std::to_string(1000 + number) + "-exchange.json";
    ASSERT_TRUE(WriteFileAtomic(file, "").ok());
    ASSERT_EQ(truncate(file.c_str(), static_cast<off_t>(bytes)), 0);
  };
  make(0, (size_t{16} << 20) + 1);
  Status status = MakeReplayProvider(path_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_NE(status.message().find("1000-exchange.json: over the limit"), std::string::npos);
  for (int i = 0; i < 17; ++i) make(i, size_t{16} << 20);
  status = MakeReplayProvider(path_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_NE(status.message().find("its exchanges are over"), std::string::npos);
}

TEST_F(TranscriptTest, OverlappingRequestsInAnyOrder) {
  Record({"one", "two", "three"});
  const auto provider = MakeProvider("replay:" + path_, {});
  ASSERT_TRUE(provider.ok());
  EXPECT_EQ(Replay(**provider, "two")->content, "reply 1 \xc3\xa9 [key]");
  EXPECT_EQ(Replay(**provider, "one")->content, "reply 0 \xc3\xa9 [key]");
}

TEST_F(TranscriptTest, ContinuesAnExistingFolder) {
  Record({"one", "two"});
  Record({"three", "four"});
  const auto provider = MakeProvider("replay:" + path_, {});
  ASSERT_TRUE(provider.ok());
  EXPECT_TRUE(Replay(**provider, "one").ok());
  EXPECT_TRUE(Replay(**provider, "three").ok());
}

TEST_F(TranscriptTest, DamagedRecordings) {
  EXPECT_EQ(MakeReplayProvider(path_).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(MakeDirs(path_).ok());
  EXPECT_EQ(MakeReplayProvider(path_).status().code(), StatusCode::kNotFound);
  const std::string file = path_ + "/0001-exchange.json";
  for (const char* bad :
       {"", "{", "[]", "{}", R"({"request": {}})", R"({"request": {}, "reply": {"content": 1}})",
        R"({"request": {}, "error": 1})",
        R"({"request": {}, "error": {"code": 1, "message": ""}})"}) {
    ASSERT_TRUE(WriteFileAtomic(file, bad).ok());
    const auto provider = MakeReplayProvider(path_);
    EXPECT_EQ(provider.status().code(), StatusCode::kCorruption) << bad;
    EXPECT_NE(provider.status().message().find(file), std::string::npos);
  }
}

TEST_F(TranscriptTest, ErrorsOfUnknownCodes) {
  ASSERT_TRUE(MakeDirs(path_).ok());
  const Json request = ToJson(Ask("?"));
  for (const char* code : {"ok", "unknown status", "no such code"}) {
    const Json exchange = {{"request", request}, {"error", {{"code", code}, {"message", "m"}}}};
    ASSERT_TRUE(WriteFileAtomic(path_ + "/0001-exchange.json", exchange.dump()).ok());
    const auto provider = MakeReplayProvider(path_);
    ASSERT_TRUE(provider.ok()) << provider.status().ToString();
    EXPECT_EQ(Replay(**provider, "?").status().code(), StatusCode::kCorruption) << code;
  }
}

TEST_F(TranscriptTest, UnsavedExchangeIsAnError) {
  auto provider = MakeProvider("record:" + path_ + ":command:true", {});
  ASSERT_TRUE(provider.ok());
  ASSERT_EQ(system(("rm -r " + path_).c_str()), 0);
  EXPECT_EQ((*provider)->Complete(Ask("?"), Cancel(), {}).status().code(), StatusCode::kIoError);
}

}  // namespace
}  // namespace cudaforge
