# Writes texts as one C++ source file:
#   cmake -DFOLDER=csrc/forge "-DNAMES=prompts/a.mustache;knowledge/b.md" -DHEADER=forge/embedded.h -DNAME=EmbeddedTexts -DOUTPUT=texts.cc -P embed.cmake
# It defines what HEADER declares: with -DNAME=kName the one text as a const char*, with any other name a function that
# returns all of them.
set(source "// Made by csrc/embed.cmake.\n#include \"${HEADER}\"\n\nnamespace cudaforge {\n\n")
if(NAME MATCHES "^k")
  file(READ ${FOLDER}/${NAMES} text)
  string(APPEND source "const char* const ${NAME} = R\"cudaforge(${text})cudaforge\";\n\n")
else()
  string(APPEND source "namespace {\n\nconstexpr EmbeddedText kTexts[] = {\n")
  foreach(name IN LISTS NAMES)
    file(READ ${FOLDER}/${name} text)
    string(APPEND source "    {\"${name}\", R\"cudaforge(${text})cudaforge\"},\n")
  endforeach()
  string(APPEND source "};\n\n}  // namespace\n\n")
  string(APPEND source "std::span<const EmbeddedText> ${NAME}() { return kTexts; }\n\n")
endif()
file(WRITE ${OUTPUT} "${source}}  // namespace cudaforge\n")
