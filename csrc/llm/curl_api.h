// libcurl as a table of function pointers, opened at run time: a machine without it can do all but
// talk to HTTP services. Only its headers are needed to build.
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
  // kUnavailable when none of the libraries opens or a function is missing, with advice.
  static Result<CurlApi> Open(const std::vector<std::string>& names);
  // The system's libcurl.so.4, opened and initialised on first use and never unloaded.
  // Thread-safe.
  static const Result<CurlApi>& Get();

  std::shared_ptr<const DynamicLibrary> library;  // stays open while a copy of the table is there

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
