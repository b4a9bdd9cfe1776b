// A server on loopback that plays scripts: one for each connection, in order, on one thread.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "llm/provider.h"

namespace cudaforge {

class ScriptedServer {
 public:
  // One connection after its request was read; closed at the end of the script. Functions return
  // early if the server stops or the client leaves.
  class Connection {
   public:
    Connection(int fd, const std::atomic<bool>& stop) : fd_(fd), stop_(stop) {}
    bool Send(std::string_view bytes) {
      while (!bytes.empty() && !stop_) {
        pollfd poll_fd{fd_, POLLOUT, 0};
        if (poll(&poll_fd, 1, kSliceMs) == 0) continue;
        const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<size_t>(n));
      }
      return !stop_;
    }
    // In pieces of `size` bytes.
    bool Drip(std::string_view bytes, size_t size) {
      for (size_t at = 0; at < bytes.size(); at += size) {
        if (!Send(bytes.substr(at, size))) return false;
      }
      return true;
    }
    // Sends nothing until the client leaves.
    void Hang() {
      char byte;
      while (!stop_) {
        pollfd poll_fd{fd_, POLLIN, 0};
        if (poll(&poll_fd, 1, kSliceMs) > 0 && recv(fd_, &byte, 1, MSG_DONTWAIT) <= 0) return;
      }
    }
    // Repeats the piece with short pauses until the client leaves.
    void Repeat(std::string_view piece) {
      while (Send(piece)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }

   private:
    static constexpr int kSliceMs = 10;
    int fd_;
    const std::atomic<bool>& stop_;
  };
  using Script = std::function<void(Connection&)>;

  explicit ScriptedServer(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_.get(), generic, size) != 0 || listen(listener_.get(), 16) != 0 ||
        getsockname(listener_.get(), generic, &size) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;
  ~ScriptedServer() {
    stop_ = true;
    thread_.join();
  }

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Headers and body of each request so far.
  std::vector<std::string> requests() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return requests_;
  }

 private:
  void Serve() {
    for (size_t next = 0; !stop_;) {
      pollfd poll_fd{listener_.get(), POLLIN, 0};
      if (poll(&poll_fd, 1, 10) <= 0) continue;
      const UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const int no_delay = 1;
      setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof(no_delay));
      if (next == scripts_.size()) continue;  // no more scripts: closed at once
      if (!ReadRequest(fd.get())) continue;
      Connection connection(fd.get(), stop_);
      scripts_[next++](connection);
    }
  }

  bool ReadRequest(int fd) {
    std::string text;
    size_t wanted = std::string::npos;
    while (!stop_ && text.size() < wanted) {
      char chunk[1 << 14];
      pollfd poll_fd{fd, POLLIN, 0};
      if (poll(&poll_fd, 1, 10) == 0) continue;
      const ssize_t n = recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT);
      if (n <= 0) break;
      text.append(chunk, static_cast<size_t>(n));
      if (text[0] == '\x16') break;  // a TLS handshake: let the script answer
      const size_t end = text.find("\r\n\r\n");
      const size_t length = text.find("Content-Length: ");
      if (end != std::string::npos && length < end) {
        wanted = end + 4 + static_cast<size_t>(std::atol(text.c_str() + length + 16));
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_.push_back(text);
    return !text.empty();
  }

  std::vector<Script> scripts_;
  UniqueFd listener_;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

// A whole answer: "200 OK", extra header lines each with their line end, the body.
inline std::string HttpText(std::string_view status, std::string_view body,
                            std::string_view headers = "") {
  return "HTTP/1.1 " + std::string(status) + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

// A listener on loopback whose queue is full: it takes no more connections and refuses none.
class FullListener {
 public:
  FullListener() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    auto* const generic = reinterpret_cast<sockaddr*>(&address_);
    if (bind(listener_.get(), generic, size) != 0 || listen(listener_.get(), 0) != 0 ||
        getsockname(listener_.get(), generic, &size) != 0) {
      std::abort();
    }
    for (int i = 0; i < 8; ++i) {
      fillers_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(fillers_.back().get(), generic, size);
    }
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }

 private:
  UniqueFd listener_;
  sockaddr_in address_ = {};
  std::vector<UniqueFd> fillers_;
};

// The head of a stream that ends with the connection.
inline constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

// A script that sends `text`.
inline ScriptedServer::Script Says(std::string text) {
  return [text = std::move(text)](ScriptedServer::Connection& c) { c.Send(text); };
}

inline constexpr std::string_view kTestKey = "sk-test-0123456789abcdef";

// Settings for a server on loopback, with waits that are short.
inline ProviderSettings LocalSettings(const std::string& url) {
  ProviderSettings settings;
  settings.environment = {{"OPENAI_BASE_URL", url}, {"ANTHROPIC_BASE_URL", url}};
  settings.api_key = kTestKey;
  settings.retry = {.max_attempts = 3, .first_wait_s = 0.01, .max_wait_s = 0.02};
  return settings;
}

// A request of one message.
inline LlmRequest Ask(std::string question, double total_s = 30) {
  LlmRequest request;
  request.messages = {{Speaker::kSystem, "You write kernels."},
                      {Speaker::kUser, std::move(question)}};
  request.limits.total_s = total_s;
  return request;
}

}  // namespace cudaforge
