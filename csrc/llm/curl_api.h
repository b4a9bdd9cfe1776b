// libcurl as a table of function pointers, opened at run time. Without it, only HTTP services are
// unavailable. A build needs only its headers.
#pragma once

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include <memory>
#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "base/status.h"

namespace cudaforge {

struct CurlApi {
  // kUnavailable, with advice: no library opens, or a function is missing.
  static Result<CurlApi> Open(const std::vector<std::string>& names);
  // The system's libcurl.so.4, opened and initialised on first use and never closed. Thread-safe.
  static const Result<CurlApi>& Get();

  std::shared_ptr<const DynamicLibrary> library;  // stays open while a copy of the table exists

  decltype(&curl_global_init) GlobalInit = nullptr;
  decltype(&curl_easy_init) EasyInit = nullptr;
  decltype(&curl_easy_cleanup) EasyCleanup = nullptr;
  decltype(&curl_easy_setopt) EasySetopt = nullptr;
  decltype(&curl_easy_getinfo) EasyGetinfo = nullptr;
  decltype(&curl_easy_strerror) EasyStrerror = nullptr;
  decltype(&curl_slist_append) SlistAppend = nullptr;
  decltype(&curl_slist_free_all) SlistFreeAll = nullptr;
  decltype(&curl_multi_init) MultiInit = nullptr;
  decltype(&curl_multi_cleanup) MultiCleanup = nullptr;
  decltype(&curl_multi_add_handle) MultiAddHandle = nullptr;
  decltype(&curl_multi_remove_handle) MultiRemoveHandle = nullptr;
  decltype(&curl_multi_perform) MultiPerform = nullptr;
  decltype(&curl_multi_poll) MultiPoll = nullptr;
  decltype(&curl_multi_info_read) MultiInfoRead = nullptr;
};

}  // namespace cudaforge
