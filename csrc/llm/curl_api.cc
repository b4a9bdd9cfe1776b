#include "llm/curl_api.h"

namespace cudaforge {
namespace {

template <typename Function>
void ResolveCurl(const DynamicLibrary& library, const char* name, Function& function,
                 std::string& missing) {
  function = reinterpret_cast<Function>(library.Symbol(name));
  if (function == nullptr && missing.empty()) missing = name;
}

Result<CurlApi> OpenAndInitialise() {
  CF_ASSIGN_OR_RETURN(CurlApi api, CurlApi::Open({"libcurl.so.4"}));
  if (api.GlobalInit(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return Status::Unavailable("libcurl cannot be initialised");
  }
  return api;
}

}  // namespace

Result<CurlApi> CurlApi::Open(const std::vector<std::string>& names) {
  Result<DynamicLibrary> opened = DynamicLibrary::Open(names);
  if (!opened.ok()) {
    return Status::Unavailable(
        "libcurl is not there: install Debian's libcurl4 (Ubuntu 24.04: "
        "libcurl4t64), or use a provider that needs no HTTP; " +
        opened.status().message());
  }
  CurlApi api;
  api.library = std::make_shared<const DynamicLibrary>(*std::move(opened));
  const DynamicLibrary& library = *api.library;
  std::string missing;
  ResolveCurl(library, "curl_global_init", api.GlobalInit, missing);
  ResolveCurl(library, "curl_easy_init", api.EasyInit, missing);
  ResolveCurl(library, "curl_easy_cleanup", api.EasyCleanup, missing);
  ResolveCurl(library, "curl_easy_setopt", api.EasySetopt, missing);
  ResolveCurl(library, "curl_easy_getinfo", api.EasyGetinfo, missing);
  ResolveCurl(library, "curl_easy_strerror", api.EasyStrerror, missing);
  ResolveCurl(library, "curl_slist_append", api.SlistAppend, missing);
  ResolveCurl(library, "curl_slist_free_all", api.SlistFreeAll, missing);
  ResolveCurl(library, "curl_multi_init", api.MultiInit, missing);
  ResolveCurl(library, "curl_multi_cleanup", api.MultiCleanup, missing);
  ResolveCurl(library, "curl_multi_add_handle", api.MultiAddHandle, missing);
  ResolveCurl(library, "curl_multi_remove_handle", api.MultiRemoveHandle, missing);
  ResolveCurl(library, "curl_multi_perform", api.MultiPerform, missing);
  ResolveCurl(library, "curl_multi_poll", api.MultiPoll, missing);
  ResolveCurl(library, "curl_multi_info_read", api.MultiInfoRead, missing);
  if (!missing.empty()) {
    return Status::Unavailable(library.path() + " has no " + missing +
                               ": libcurl 7.85 or newer is needed");
  }
  return api;
}

const Result<CurlApi>& CurlApi::Get() {
  // Its TLS library keeps state that does not survive unloading.
  static const auto* const api = new Result<CurlApi>(OpenAndInitialise());
  return *api;
}

}  // namespace cudaforge
