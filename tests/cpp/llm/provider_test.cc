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
  settings.base_url = base_url;
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

TEST(MakeProviderTest, KeysAreAskedForBeforeAnyConnection) {
  EXPECT_NE(MakeError("openai:gpt-5").find("OPENAI_API_KEY"), std::string::npos);
  EXPECT_NE(MakeError("anthropic:claude").find("ANTHROPIC_API_KEY"), std::string::npos);
  MakeError("openai:gpt-5", At("https://api.openai.com/v1/"));
  EXPECT_TRUE(MakeProvider("openai:local", At("http://localhost:8000/v1")).ok());
  EXPECT_TRUE(MakeProvider("openai:local", At("http://gpu-box:8000/v1")).ok());
}

TEST(MakeProviderTest, OptionsWinOverTheEnvironment) {
  ProviderSettings settings;
  settings.environment = {{"OPENAI_API_KEY", "k"}, {"ANTHROPIC_API_KEY", "k"}};
  EXPECT_TRUE(MakeProvider("openai:gpt-5", settings).ok());
  EXPECT_TRUE(MakeProvider("anthropic:claude", settings).ok());
  settings.environment["OPENAI_BASE_URL"] = "http://example.com";
  const std::string message = MakeError("openai:gpt-5", settings);
  EXPECT_NE(message.find("unencrypted"), std::string::npos) << message;
  settings.base_url = "https://example.com";
  const auto provider = MakeProvider("openai:gpt-5", settings);
  ASSERT_TRUE(provider.ok());
  EXPECT_EQ((*provider)->name(), "openai:gpt-5");
  settings.api_key = "two words";
  EXPECT_EQ(MakeError("openai:gpt-5", settings).find("two words"), std::string::npos);
}

TEST(MakeProviderTest, AnAddressInTheSpecComesFirst) {
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

TEST(MakeProviderTest, TheHelpHasEveryKind) {
  const std::string help = ProvidersHelp();
  for (const char* known :
       {"openai:MODEL[@URL] ", "anthropic:", "command:", "mailbox:", "record:", "replay:DIR "}) {
    EXPECT_NE(help.find("  " + std::string(known)), std::string::npos) << help;
  }
}

TEST(MakeProviderTest, NamesShowNoArguments) {
  const auto command = MakeProvider("command:/home/me/agent --key  secret", {});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ((*command)->name(), "command:agent");
  const Result<TempDir> dir = TempDir::Create("provider_test");
  ASSERT_TRUE(dir.ok());
  const auto mailbox = MakeProvider("mailbox:" + dir->path() + "/box", {});
  ASSERT_TRUE(mailbox.ok());
  EXPECT_EQ((*mailbox)->name(), "mailbox:" + dir->path() + "/box");
  EXPECT_EQ(MakeProvider("replay:" + dir->path(), {}).status().code(), StatusCode::kNotFound);
}

TEST(MakeProviderTest, CommandsAreSplitAndNotGivenToAShell) {
  const auto provider = MakeProvider("command:printf {\"content\":\"%s\"}\t$HOME;", {});
  ASSERT_TRUE(provider.ok());
  const Result<Reply> reply = (*provider)->Complete({}, Cancel(), {});
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_EQ(reply->content, "$HOME;");
}

}  // namespace
}  // namespace cudaforge
