#include "llm/provider.h"

#include <gtest/gtest.h>

#include "base/file.h"

namespace cudaforge {
namespace {

std::string MakeError(std::string_view spec, const ProviderSettings& settings = {}) {
  const auto provider = MakeProvider(spec, settings);
  EXPECT_EQ(provider.status().code(), StatusCode::kInvalidArgument) << spec;
  return provider.status().message();
}

ProviderSettings At(const std::string& base_url) {
  ProviderSettings settings;
  settings.environment = {{"OPENAI_BASE_URL", base_url}, {"ANTHROPIC_BASE_URL", base_url}};
  return settings;
}

TEST(MakeProviderTest, UnknownSpecsListTheKnownOnes) {
  for (const char* spec : {"", "gpt-5", "azure:gpt-5", ":", "OpenAI:gpt-5"}) {
    const std::string message = MakeError(spec);
    for (const char* known :
         {"openai:", "anthropic:", "command:", "mailbox:", "record:", "replay:"}) {
      EXPECT_NE(message.find(known), std::string::npos) << message;
    }
  }
  for (const char* spec : {"openai:", "command:", "command:  ", "record:", "record:dir",
                           "record::openai:x", "record:/tmp/x:nothing:x"}) {
    MakeError(spec);
  }
}

TEST(MakeProviderTest, MissingKeyIsRefusedBeforeAnyConnection) {
  EXPECT_NE(MakeError("openai:gpt-5").find("OPENAI_API_KEY"), std::string::npos);
  EXPECT_NE(MakeError("anthropic:claude").find("ANTHROPIC_API_KEY"), std::string::npos);
  MakeError("openai:gpt-5", At("https://api.openai.com/v1/"));
  EXPECT_TRUE(MakeProvider("openai:local", At("http://localhost:8000/v1")).ok());
  EXPECT_TRUE(MakeProvider("openai:local", At("http://gpu-box:8000/v1")).ok());
}

TEST(MakeProviderTest, KeyInTheSettingsOverridesTheEnvironment) {
  ProviderSettings settings;
  settings.environment = {{"OPENAI_API_KEY", "k"}, {"ANTHROPIC_API_KEY", "k"}};
  EXPECT_TRUE(MakeProvider("openai:gpt-5", settings).ok());
  EXPECT_TRUE(MakeProvider("anthropic:claude", settings).ok());
  settings.environment["OPENAI_BASE_URL"] = "http://example.com";
  const std::string message = MakeError("openai:gpt-5", settings);
  EXPECT_NE(message.find("unencrypted"), std::string::npos) << message;
  settings.environment["OPENAI_BASE_URL"] = "https://example.com";
  const auto provider = MakeProvider("openai:gpt-5", settings);
  ASSERT_TRUE(provider.ok());
  EXPECT_EQ((*provider)->name(), "openai:gpt-5");
  settings.api_key = "two words";
  EXPECT_EQ(MakeError("openai:gpt-5", settings).find("two words"), std::string::npos);
}

TEST(MakeProviderTest, AddressInTheSpecOverridesTheEnvironment) {
  ProviderSettings settings = At("ftp://no");
  settings.api_key = "a-key-of-mine";
  EXPECT_NE(MakeError("openai:m@http://example.com/v1", settings).find("unencrypted"),
            std::string::npos);
  const auto provider = MakeProvider("openai:org/m@v2@https://example.com/v1", settings);
  ASSERT_TRUE(provider.ok()) << provider.status().ToString();
  EXPECT_EQ((*provider)->name(), "openai:org/m@v2");
  EXPECT_TRUE(MakeProvider("anthropic:claude@https://example.com", settings).ok());
  MakeError("openai:@https://example.com", settings);
  MakeError("openai:m@http://user:word@example.com", settings);
}

TEST(MakeProviderTest, EnvironmentsKeyIsNotSentElsewhere) {
  ProviderSettings settings = At("https://gateway.example/v1");
  settings.environment["OPENAI_API_KEY"] = "two words";  // refused where it would be sent
  settings.environment["ANTHROPIC_API_KEY"] = "two words";
  for (const char* known :
       {"openai:m", "openai:m@https://api.openai.com/v1", "openai:m@https://gateway.example/v1/",
        "anthropic:m", "anthropic:m@https://api.anthropic.com"}) {
    EXPECT_NE(MakeError(known, settings).find("blank"), std::string::npos) << known;
  }
  for (const char* other : {"openai:m@https://example.com/v1", "openai:m@http://localhost:8000/v1",
                            "openai:m@http://api.openai.com/v1"}) {
    EXPECT_TRUE(MakeProvider(other, settings).ok()) << other;
  }
  for (const char* other : {"anthropic:m@https://example.com", "anthropic:m@http://127.0.0.1:80"}) {
    EXPECT_NE(
        MakeError(other, settings).find("set CUDAFORGE_CODER_API_KEY or CUDAFORGE_JUDGE_API_KEY"),
        std::string::npos);
  }
  settings.api_key = "a-key-of-mine";
  EXPECT_TRUE(MakeProvider("anthropic:m@https://example.com", settings).ok());
}

TEST(MakeProviderTest, MalformedAddressIsRefused) {
  ProviderSettings settings;
  settings.api_key = "a-key-of-mine";
  for (const char* spec :
       {"openai:m@localhost:8000/v1", "openai:m@HTTP://example.com", "openai:m@Https://example.com",
        "openai:m@user:secret@host/v1", "openai:m@user:secret@https://host/v1",
        "openai:m@ftp://secret", "openai:m@http:/secret", "anthropic:m@secret:1"}) {
    const std::string message = MakeError(spec, settings);
    EXPECT_EQ(message, "the address behind @ begins with http:// or https://") << spec;
  }
  for (const char* spec : {"openai:org/m@v2", "openai:@cf/meta/llama", "openai:m@httpd",
                           "openai:ft:m:org@v2", "openai:m@v2@https://example.com/v1"}) {
    const auto provider = MakeProvider(spec, settings);
    EXPECT_TRUE(provider.ok()) << spec << provider.status().ToString();
  }
}

TEST(MakeProviderTest, OnlyServicesAreMetered) {
  const Result<TempDir> dir = TempDir::Create("provider_test");
  ASSERT_TRUE(dir.ok());
  const std::string box = "mailbox:" + dir->path() + "/box";
  EXPECT_FALSE((*MakeProvider(box, {}))->is_metered());
  EXPECT_FALSE((*MakeProvider("record:" + dir->path() + "/tape:" + box, {}))->is_metered());
  const auto command = MakeProvider("record:" + dir->path() + "/tape:command:true", {});
  ASSERT_TRUE(command.ok());
  EXPECT_TRUE((*command)->is_metered());
}

TEST(MakeProviderTest, MissingProgramIsRefusedAtOnce) {
  for (const char* program : {"/no/such/program", "no-such-program", "/tmp", "/etc/passwd"}) {
    EXPECT_NE(MakeError("command:" + std::string(program) + " x").find(program), std::string::npos);
  }
}

TEST(MakeProviderTest, EachServiceHasTwoVariables) {
  EXPECT_EQ(ProviderVariables(),
            (std::vector<std::string>{"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL",
                                      "ANTHROPIC_API_KEY"}));
  // A server compatible with Anthropic also gets a key.
  MakeError("anthropic:claude", At("http://localhost:8000"));
}

TEST(MakeProviderTest, HelpListsEveryKind) {
  const std::string help = ProvidersHelp();
  for (const char* known :
       {"openai:MODEL[@URL] ", "anthropic:", "command:", "mailbox:", "record:", "replay:DIR "}) {
    EXPECT_NE(help.find("  " + std::string(known)), std::string::npos) << help;
  }
}

TEST(MakeProviderTest, NamesShowNoArguments) {
  const auto command = MakeProvider("command:/bin/sh --key  secret", {});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ((*command)->name(), "command:sh");
  const Result<TempDir> dir = TempDir::Create("provider_test");
  ASSERT_TRUE(dir.ok());
  const auto mailbox = MakeProvider("mailbox:" + dir->path() + "/box", {});
  ASSERT_TRUE(mailbox.ok());
  EXPECT_EQ((*mailbox)->name(), "mailbox:" + dir->path() + "/box");
  EXPECT_EQ(MakeProvider("replay:" + dir->path(), {}).status().code(), StatusCode::kNotFound);
}

TEST(MakeProviderTest, CommandsAreSplitWithoutAShell) {
  const auto provider = MakeProvider("command:printf {\"content\":\"%s\"}\t$HOME;", {});
  ASSERT_TRUE(provider.ok());
  const Result<Reply> reply = (*provider)->Complete({}, Cancel(), {});
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "$HOME;");
}

}  // namespace
}  // namespace cudaforge
