/* Does the compiler add AddressSanitizer or ThreadSanitizer? gcc and clang tell it differently. */
#ifndef EXECUTOR_MEMORY_SANITIZER_H
#define EXECUTOR_MEMORY_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ADDRESS_SANITIZER 1
#endif
#endif
#if !defined(HAVE_ADDRESS_SANITIZER)
#define HAVE_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__)
#define HAVE_OTHER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HAVE_OTHER_SANITIZER 1
#endif
#endif
#if !defined(HAVE_OTHER_SANITIZER)
#define HAVE_OTHER_SANITIZER 0
#endif

#endif
