#include "llm/curl_api.h"

namespace cudaforge {
namespace {

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
        "libcurl is missing: install Debian's libcurl4 (Ubuntu 24.04: "
        "libcurl4t64), or use a provider that needs no HTTP; " +
        opened.status().message());
  }
  CurlApi api;
  api.library = std::make_shared<const DynamicLibrary>(*std::move(opened));
  const DynamicLibrary& library = *api.library;
  SymbolLoader load{library, {}};
  load.Required(api.GlobalInit, "curl_global_init");
  load.Required(api.EasyInit, "curl_easy_init");
  load.Required(api.EasyCleanup, "curl_easy_cleanup");
  load.Required(api.EasySetopt, "curl_easy_setopt");
  load.Required(api.EasyGetinfo, "curl_easy_getinfo");
  load.Required(api.EasyStrerror, "curl_easy_strerror");
  load.Required(api.SlistAppend, "curl_slist_append");
  load.Required(api.SlistFreeAll, "curl_slist_free_all");
  load.Required(api.MultiInit, "curl_multi_init");
  load.Required(api.MultiCleanup, "curl_multi_cleanup");
  load.Required(api.MultiAddHandle, "curl_multi_add_handle");
  load.Required(api.MultiRemoveHandle, "curl_multi_remove_handle");
  load.Required(api.MultiPerform, "curl_multi_perform");
  load.Required(api.MultiPoll, "curl_multi_poll");
  load.Required(api.MultiInfoRead, "curl_multi_info_read");
  if (!load.missing.empty()) {
    return Status::Unavailable(library.path() + " has no " + load.missing +
                               ": libcurl 7.85 or newer is needed");
  }
  return api;
}

const Result<CurlApi>& CurlApi::Get() {
  // Never unloaded: its TLS library has state that does not survive that.
  static const auto* const api = new Result<CurlApi>(OpenAndInitialise());
  return *api;
}

}  // namespace cudaforge
